// Implementation of linear.h: cuts the work into (weight, panels, rows) items and hands them to the products of product.h.
#include "kernels/linear/product.h"
#include "kernels/linear/quantised.h"

namespace lockstep {

// Rows of item g: all, or its slots.
struct RowRange {
  std::int64_t begin, end;
};
static RowRange rows_of(const View& offsets, std::int64_t g, std::int64_t all) {
  if (!offsets) return {0, all};
  return {ints(offsets)[g], ints(offsets)[g + 1]};
}

// The same with a weight of integers. Items that read columns of their own (heads) have rows of x of their own.
template <class V>
void quantised_linear(const LinearForward& op, ThreadPool& pool) {
  if (op.w.count == 0) return;
  with_integer_dot<V>([&](auto dot) {
    using Dot = decltype(dot);
    const QuantisedShape shape = op.w.quantised();
    const std::int64_t panels = op.w.panels();
    const RowRange first = rows_of(op.offsets, 0, op.x.rows), last = rows_of(op.offsets, op.w.count - 1, op.x.rows);
    const std::int64_t used = last.end - first.begin, slices = op.x_step ? op.w.count : 1;
    if (used <= 0) return;
    const QuantisedRows<V, Dot> x = quantise_rows<V, Dot>(used * slices, op.w.inputs, pool, [&](std::int64_t at) {
      return elements<V>(op.x) + (first.begin + at / slices) * op.x.stride + at % slices * op.x_step;
    });
    const std::int64_t row_block = 96, row_blocks = std::max<std::int64_t>(1, (op.x.rows + row_block - 1) / row_block);
    const std::int64_t panel_block = row_blocks * op.w.count >= pool.threads() * 2 ? panels : std::max<std::int64_t>(4, (panels + 7) / 8);
    const std::int64_t panel_blocks = (panels + panel_block - 1) / panel_block;
    pool.run(op.w.count * row_blocks * panel_blocks, [&](std::int64_t item) {
      const std::int64_t g = item / (row_blocks * panel_blocks), rest = item % (row_blocks * panel_blocks);
      const RowRange range = rows_of(op.offsets, g, op.x.rows);
      const std::int64_t begin = range.begin + rest / panel_blocks * row_block;
      const std::int64_t count = std::min(range.end, begin + row_block) - begin;
      if (count <= 0) return;
      const std::int64_t panel = rest % panel_blocks * panel_block;
      quantised_forward<V, Dot>({elements<V>(op.y) + begin * op.y.stride + g * op.y_step, op.y.stride, x,
                                 (begin - first.begin) * slices + (slices > 1 ? g : 0), slices,
                                 device_pointer<std::uint8_t>(op.w.data) + g * shape.bytes(), shape, 0, 0, 0},
                                count, op.w.maximum_leaves, op.leaf_begin, op.leaf_end, panel, std::min(panels, panel + panel_block));
    });
  });
}

constexpr std::int64_t kSameSet = 1024;  // floats: a page

template <class V>
void linear_forward(const LinearForward& op, ThreadPool& pool) {
  if (op.w.bits) return quantised_linear<V>(op, pool);
  using Elem = typename V::Elem;
  const std::int64_t panels = op.w.panels(), rows = op.x.rows;
  if (panels == 0 || op.w.count == 0) return;  // a rank without experts, or without leaves
  // Items: enough that no thread waits long for the last one, each with whole register tiles.
  const std::int64_t row_block = rows >= 256 ? 96 : 48;
  const std::int64_t row_blocks = std::max<std::int64_t>(1, (rows + row_block - 1) / row_block);
  const std::int64_t wanted = std::max<std::int64_t>(1, (pool.threads() * 8 + row_blocks * op.w.count - 1) / (row_blocks * op.w.count));
  const std::int64_t panel_block = wanted == 1 ? panels : std::max<std::int64_t>(8, (panels + wanted - 1) / wanted + 1) / 2 * 2;
  const std::int64_t panel_blocks = (panels + panel_block - 1) / panel_block;
  with_stored<V>(op.w.data, [&](const auto* weights) {
    using W = std::remove_cv_t<std::remove_pointer_t<decltype(weights)>>;
    pool.run(op.w.count * row_blocks * panel_blocks, [&](std::int64_t item) {
      const std::int64_t g = item / (row_blocks * panel_blocks), rest = item % (row_blocks * panel_blocks);
      const RowRange range = rows_of(op.offsets, g, rows);
      const std::int64_t begin = range.begin + rest / panel_blocks * row_block;
      const std::int64_t count = std::min(range.end, begin + row_block) - begin;
      if (count <= 0) return;
      const std::int64_t panel = rest % panel_blocks * panel_block;
      const Elem* x = elements<V>(op.x) + begin * op.x.stride + g * op.x_step;
      std::int64_t x_stride = op.x.stride;
      if (op.round_input_bf16) {
        Elem* rounded = thread_scratch<Elem>(static_cast<std::size_t>(count * op.w.inputs));
        round_rows<V>(rounded, x, x_stride, count, op.w.inputs);
        x = rounded;
        x_stride = op.w.inputs;
      }
      else if (x_stride % kSameSet == 0 && count >= V::kRows && panel_block >= 16) {
        // Rows whole pages apart lie in the same sets of the first cache, which has fewer ways than a tile has rows.
        const std::int64_t apart = op.w.inputs + 16;
        Elem* copy = thread_scratch<Elem>(static_cast<std::size_t>(count * apart));
        for (std::int64_t t = 0; t < count; ++t) __builtin_memcpy(copy + t * apart, x + t * x_stride, static_cast<std::size_t>(op.w.inputs) * sizeof(Elem));
        x = copy;
        x_stride = apart;
      }
      Product<V, W> product{elements<V>(op.y) + begin * op.y.stride + g * op.y_step, op.y.stride, x, x_stride,
                            weights + g * op.w.packed_size(), op.w.inputs, op.w.outputs, 0, 0, 0, false};
      product_forward<V, W>(product, count, op.w.maximum_leaves, op.leaf_begin, op.leaf_end, panel, std::min(panels, panel + panel_block));
    });
  });
}

template <class V>
void linear_backward_input(const LinearBackwardInput& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const std::int64_t blocks = (op.w.inputs + 15) / 16, rows = op.dy.rows;
  const std::int64_t block_step = std::min<std::int64_t>(blocks, 2);
  const std::int64_t block_items = (blocks + block_step - 1) / block_step;
  with_stored<V>(op.w.data, [&](const auto* weights) {
    using W = std::remove_cv_t<std::remove_pointer_t<decltype(weights)>>;
    pool.run(op.w.count * block_items, [&](std::int64_t item) {
      const std::int64_t g = item / block_items, begin = item % block_items * block_step;
      const RowRange range = rows_of(op.offsets, g, rows);
      if (range.end <= range.begin) return;
      Elem* scratch = thread_scratch<Elem>(static_cast<std::size_t>(block_step * op.w.outputs * 16));
      product_input<V, W>(elements<V>(op.dx) + range.begin * op.dx.stride + g * op.x_step, op.dx.stride,
                          elements<V>(op.dy) + range.begin * op.dy.stride + g * op.y_step, op.dy.stride, weights + g * op.w.packed_size(),
                          op.w.outputs, op.w.inputs, op.w.maximum_leaves, range.end - range.begin, begin,
                          std::min(blocks, begin + block_step), op.accumulate, scratch);
    });
  });
}

template <class V>
void linear_backward_weight(const LinearBackwardWeight& op, ThreadPool& pool) {
  using Accumulator = AccumulatorVec<V>;
  using Storage = typename Accumulator::Storage;
  const std::int64_t panels = op.w.panels();
  // All inputs of a panel at once, so that its dy is read once, unless that leaves threads without work.
  const std::int64_t k_step = op.w.count * panels >= pool.threads() * 2 ? 256 : 64;
  const std::int64_t k_items = (op.w.inputs + k_step - 1) / k_step;
  pool.run(op.w.count * panels * k_items, [&](std::int64_t item) {
    const std::int64_t g = item / (panels * k_items), panel = item / k_items % panels, k = item % k_items * k_step;
    const RowRange range = rows_of(op.offsets, g, op.dy.rows);
    const std::int64_t base = g * op.w.packed_size();
    const std::int32_t* segment = ints(op.segment);
    const std::int32_t* row_of = op.row_of ? ints(op.row_of) : nullptr;
    product_weight<V>(op.gradient ? elements<V>(op.gradient) + base : nullptr,
                      op.bins ? device_pointer<Storage>(op.bins) + base / 16 * Accumulator::kStorage : nullptr, op.finish,
                      elements<V>(op.dy) + g * op.y_step, op.dy.stride, elements<V>(op.x) + g * op.x_step, op.x.stride, range.begin,
                      range.end, op.w.outputs, op.w.inputs, panel, k, std::min(op.w.inputs, k + k_step),
                      [=](std::int64_t t) { return segment[row_of ? row_of[t] : t]; });
  });
}

LOCKSTEP_INSTANTIATE(linear_forward, LinearForward)
LOCKSTEP_INSTANTIATE(linear_backward_input, LinearBackwardInput)
LOCKSTEP_INSTANTIATE(linear_backward_weight, LinearBackwardWeight)

}  // namespace lockstep
