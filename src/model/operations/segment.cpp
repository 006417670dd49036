#include "model/operations/segment.h"

namespace lockstep {

namespace {
Tensor run(Context& ctx, const Tensor& input, const SegmentLayers& layers, Selection& selection) {
  Tensor h = input;
  for (std::size_t i = layers.begin; i < layers.end; ++i) h = layers.layer(ctx, h, i, selection);
  return h;
}

// The adjoint of layers of which only the input and what they select was saved: computes them again. `compared`: the number of the row source's value
// to compare with; -1: none.
InputGradients layers_again(Context& ctx, ForwardOptions options, const Buffer& input, const SegmentLayers& layers, Selection selection, const Buffer& dy,
                            bool requires_grad, std::int64_t compared) {
  Tape inner(ctx.backend(), ctx.gradients());
  const WorkCounters::Paused paused(ctx.counters());
  options.checkpoint = false;
  options.outputs_read = layers.end - layers.begin > 1 || compared >= 0;
  if (options.observer) options.observer->replay_segment();
  return ctx.with(&inner, options, [&]() -> InputGradients {
    Tensor again = of_rows(ctx.batch(), input);
    if (requires_grad || !inner.frozen()) again.node = inner.new_node();
    const Tensor y = run(ctx, again, layers, selection);
    if (compared >= 0) options.row_source->compare(compared, y.view());
    inner.contribute(y.node, dy);
    inner.backward();
    return {inner.take(again.node)};
  });
}

// `layers`: some of a segment. Their selection stays until they have been computed again; with the layer that has the indexer also the sum of
// probabilities that it learns, which all layers behind it have then added to.
Tensor checkpointed(Context& ctx, const Tensor& input, const SegmentLayers& layers, Selection& selection, bool first) {
  const std::int64_t first_value = ctx.next_row_value();
  Tensor y = ctx.with(nullptr, ctx.options(), [&] { return run(ctx, input.detached(), layers, selection); });
  Selection kept = selection;
  if (!first) kept.target = {};
  // Adapters inside may be trained even when the input requires no gradient.
  ctx.record(
      y, {input.linked()},
      [&ctx, first_value, buffer = input.buffer, layers, kept = std::move(kept), first](const Buffer& dy, const RecordedInputs& x) -> InputGradients {
        ctx.next_row_value() = first_value;
        if (first) ctx.counters().rows_again(ctx.batch().count());
        ForwardOptions options = ctx.options();
        options.router_loads = nullptr;  // already counted in the forward
        return layers_again(ctx, options, buffer, layers, kept, dy, x.requires_grad(0), -1);
      },
      true);
  return y;
}

// One layer at a time. But probabilities over all keys, of the dense warm-up of indexers, are too many to be kept: layers that add them up are computed
// again together, and select nothing.
Tensor checkpointed_segment(Context& ctx, const Tensor& input, const SegmentLayers& layers) {
  const ForwardOptions& options = ctx.options();
  const bool sums = options.index_loss && layers.end - layers.begin > 1, together = sums && options.dense_attention;
  Selection selection;
  if (sums && !together)
    selection.target = of_rows(ctx.batch(), ctx.backend().device().allocate_zero(DType::f32, ctx.batch().count(), layers.top_k, MemoryCategory::activations));
  if (together) return checkpointed(ctx, input, layers, selection, true);
  Tensor h = input;
  for (std::size_t i = layers.begin; i < layers.end; ++i) h = checkpointed(ctx, h, {i, i + 1, layers.top_k, layers.layer}, selection, i == layers.begin);
  return h;
}

// The segment's output is read from the source when it is first needed: for all segments but the last that is in the backward, one at a time.
Tensor read_segment(Context& ctx, const Tensor& input, const SegmentLayers& layers) {
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
    Selection selection;
    source->compare(segment, run(ctx, of_rows(ctx.batch(), input_rows()), layers, selection).view());
  }
  ctx.record(
      y, {input.linked()},
      [&ctx, segment, input_rows, layers, rows](const Buffer& dy, const RecordedInputs& x) -> InputGradients {
        ctx.counters().rows_again(rows);
        return layers_again(ctx, ctx.options(), input_rows(), layers, {}, dy, x.requires_grad(0), segment);
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

}  // namespace

Tensor segment(Context& ctx, const Tensor& input, const SegmentLayers& layers) {
  const ForwardOptions& options = ctx.options();
  if (options.row_source && options.row_values == RowValues::segments) return read_segment(ctx, input, layers);
  Selection selection;
  Tensor y = ctx.tape() && options.checkpoint ? checkpointed_segment(ctx, input, layers) : run(ctx, input, layers, selection);
  leave_segment(ctx, y);
  return y;
}

}  // namespace lockstep
