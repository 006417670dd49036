#include "model/operations/row_tiles.h"

#include <algorithm>
#include <utility>

#include "model/adapter_rows.h"
#include "parallel/bins_codec.h"

namespace lockstep {

namespace {
bool in_tiles(const Context& ctx, const Tensor& x) {
  const ForwardOptions& options = ctx.options();
  if (options.row_tile == 0 || ctx.batch().count() <= options.row_tile) return false;
  const bool seen = options.observer || options.row_sink || options.row_source || options.expert_record.experts;
  return !seen && !x.split && !ctx.batch().source() && !options.dealt_rows;
}

// Those of `all` that stand in the part; the rows of the tape are the forward's.
std::vector<AdapterRows> adapters_of(const std::vector<AdapterRows>& all, std::int64_t begin, std::int64_t count) {
  std::vector<AdapterRows> some;
  for (AdapterRows rows : all) {
    rows.begin = rows.tape_begin = std::clamp<std::int64_t>(rows.begin - begin, 0, count);
    rows.end = rows.tape_end = std::clamp<std::int64_t>(rows.end - begin, 0, count);
    if (rows.begin < rows.end) some.push_back(rows);
  }
  return some;
}

Buffer copied(Context& ctx, const View& rows) {
  Buffer copy = ctx.allocate(DType::f32, rows.rows, rows.cols);
  ctx.backend().stream().copy(copy.view(), rows);
  return copy;
}

// f(part, options): of each tile, in order.
template <class F>
void each_tile(Context& ctx, const std::vector<std::int64_t>& bounds, const F& f) {
  const Batch& batch = ctx.batch();
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const std::int64_t begin = bounds[i], count = bounds[i + 1] - begin;
    const Batch rows(batch, begin, count);
    ForwardOptions options = ctx.options();
    options.row_tile = 0;
    std::vector<AdapterRows> adapters;
    if (options.adapters) {
      adapters = adapters_of(*options.adapters, begin, count);
      options.adapters = &adapters;
    }
    f(RowPart{rows, begin}, options);
  }
}

void compute_tiles(Context& ctx, const View& y, const View& x, const RowWork& work) {
  each_tile(ctx, ctx.batch().tiles(ctx.options().row_tile), [&](const RowPart& part, const ForwardOptions& options) {
    const std::int64_t count = part.rows.count();
    ctx.with(
        nullptr, options,
        [&] {
          const Tensor of_tile = work(of_rows(part.rows, copied(ctx, x.row_range(part.begin, count))));
          ctx.backend().stream().copy(y.row_range(part.begin, count), of_tile.view());
          return true;
        },
        &part);
  });
}

// Whether tiles save more than the accumulators take that are there for them alone.
bool saves(const GradientSet* gradients, const RowCost& cost, std::int64_t rows) {
  constexpr std::int64_t kBytesOfValue = 4;
  return !gradients || !gradients->finish_at_once() || kBinBytes * cost.weights < kBytesOfValue * cost.values * rows;
}

// The gradient of x; empty where it is not wanted.
Buffer backward_of_tiles(Context& ctx, bool wanted, const Buffer& dy, const View& x, const RowCost& cost, const RowWork& work) {
  GradientSet* const gradients = ctx.gradients();
  const std::int64_t all = ctx.batch().count(), most = ctx.options().row_tile;
  const std::vector<std::int64_t> bounds = saves(gradients, cost, all - most) ? ctx.batch().tiles(most) : std::vector<std::int64_t>{0, all};
  const bool whole = bounds.size() == 2, parts = gradients && !whole;
  Buffer dx;
  if (wanted && !whole) dx = ctx.allocate(DType::f32, x.rows, x.cols);
  if (parts) gradients->begin_parts();
  each_tile(ctx, bounds, [&](const RowPart& part, ForwardOptions options) {
    const std::int64_t count = part.rows.count();
    options.router_loads = nullptr;  // counted in the forward
    Tape inner(ctx.backend(), gradients);
    ctx.with(
        &inner, options,
        [&] {
          Tensor again = of_rows(part.rows, copied(ctx, x.row_range(part.begin, count)));
          if (wanted || !inner.frozen()) again.node = inner.new_node();
          const Tensor of_tile = work(again);
          inner.contribute(of_tile.node, whole ? dy : copied(ctx, dy.view().row_range(part.begin, count)));
          inner.backward();
          Buffer gradient = inner.take(again.node);
          if (wanted && whole) dx = std::move(gradient);
          else if (wanted && gradient) ctx.backend().stream().copy(dx.view().row_range(part.begin, count), gradient.view());
          return true;
        },
        &part);
  });
  if (parts) gradients->end_parts();
  return dx;
}
}  // namespace

Tensor in_row_tiles(Context& ctx, const Tensor& x, const RowCost& cost, const RowWork& work) {
  if (!in_tiles(ctx, x)) return work(x);
  Tensor y = ctx.output(x.view().cols);
  if (ctx.options().outputs_read || !ctx.tape()) compute_tiles(ctx, y.view(), x.view(), work);
  else ctx.backend().stream().fill_zero(y.view());
  ctx.record(
      y, {x},
      [&ctx, cost, work](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
        return {backward_of_tiles(ctx, in.requires_grad(0), dy, in[0], cost, work)};
      },
      ctx.options().adapters != nullptr);  // which the weights may have, though x requires no gradient
  return y;
}

}  // namespace lockstep
