#include "model/operations/segment.h"

namespace lockstep {

namespace {
// The adjoint of a segment of which only the input was saved: recomputes it. `compared`: the number of the row source's value to compare with; -1:
// none.
InputGradients segment_again(Context& ctx, ForwardOptions options, const Buffer& input, const SegmentBody& body, const Buffer& dy, bool requires_grad,
                             std::int64_t compared) {
  Tape inner(ctx.backend(), ctx.gradients());
  ctx.counters().rows_again(ctx.batch().count());
  const WorkCounters::Paused paused(ctx.counters());
  options.checkpoint = false;
  if (options.observer) options.observer->replay_segment();
  return ctx.with(&inner, options, [&]() -> InputGradients {
    Tensor again = of_rows(ctx.batch(), input);
    if (requires_grad || !inner.frozen()) again.node = inner.new_node();
    const Tensor y = body(ctx, again);
    if (compared >= 0) options.row_source->compare(compared, y.view());
    inner.contribute(y.node, dy);
    inner.backward();
    return {inner.take(again.node)};
  });
}
}  // namespace

Tensor checkpointed_segment(Context& ctx, const Tensor& input, SegmentBody body) {
  const std::int64_t first_value = ctx.next_row_value();
  Tensor y = ctx.with(nullptr, ctx.options(), [&] { return body(ctx, input.detached()); });
  // Adapters inside may be trained even when the input requires no gradient.
  ctx.record(
      y, {input.linked()},
      [&ctx, first_value, buffer = input.buffer, body = std::move(body)](const Buffer& dy, const RecordedInputs& x) -> InputGradients {
        ctx.next_row_value() = first_value;
        ForwardOptions options = ctx.options();
        options.router_loads = nullptr;  // already counted in the forward
        return segment_again(ctx, options, buffer, body, dy, x.requires_grad(0), -1);
      },
      true);
  return y;
}

// The segment's output is read from the source when it is first needed: for all segments but the last that is in the backward, one at a time.
Tensor read_segment(Context& ctx, const Tensor& input, SegmentBody body) {
  RowSource* source = ctx.options().row_source;
  const std::int64_t segment = ctx.next_row_value()++, rows = ctx.batch().count();
  ctx.counters().rows_read(source->rows_read());
  const auto rows_of = [&ctx, source, rows](std::int64_t value) {
    Buffer y = ctx.allocate(DType::f32, rows, source->width(value));
    source->read(value, y.view());
    return y;
  };
  const auto input_rows = [rows_of, segment, buffer = input.buffer] { return buffer ? buffer : rows_of(segment - 1); };
  Tensor y = of_rows(ctx.batch(), {});
  y.recomputed = std::make_shared<Recomputed>([rows_of, segment] { return rows_of(segment); });
  if (!ctx.tape() && source->recomputes()) {
    ctx.counters().rows_again(rows);
    source->compare(segment, body(ctx, of_rows(ctx.batch(), input_rows())).view());
  }
  ctx.record(
      y, {input.linked()},
      [&ctx, segment, input_rows, body = std::move(body)](const Buffer& dy, const RecordedInputs& x) -> InputGradients {
        return segment_again(ctx, ctx.options(), input_rows(), body, dy, x.requires_grad(0), segment);
      },
      true);
  return y;
}

void leave_segment(Context& ctx, const Tensor& y) {
  const ForwardOptions& options = ctx.options();
  const std::int64_t rows = ctx.batch().count();
  if (const RowSource* source = options.row_source) {
    ctx.counters().rows_read(source->rows_read());
    if (source->recomputes()) ctx.counters().rows_again(rows);
  } else {
    ctx.counters().rows_made(rows);
  }
  if (options.row_values == RowValues::segments && options.row_sink) options.row_sink->output(ctx.next_row_value()++, y.view(), y.buffer);
}

}  // namespace lockstep
