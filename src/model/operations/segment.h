// A group of layers as one operation. With activation checkpointing its activations are freed and recomputed in the backward; with kept forwards its
// output rows are read or stored here (model/row_values.h).
//   x = segment(ctx, x, [&](Context& c, const Tensor& input) { return layer(c, input); });
#pragma once
#include "model/context.h"

namespace lockstep {

using SegmentBody = std::function<Tensor(Context&, const Tensor&)>;

// The forms of segment().
Tensor checkpointed_segment(Context& ctx, const Tensor& input, SegmentBody body);
Tensor read_segment(Context& ctx, const Tensor& input, SegmentBody body);
void leave_segment(Context& ctx, const Tensor& y);

// Runs body(context, input), both [T, hidden]. With ForwardOptions::checkpoint and a tape its activations are freed and recomputed in the backward. With
// a source of segments its output is read instead, and the backward recomputes all of it.
template <class F>
Tensor segment(Context& ctx, const Tensor& input, const F& body) {
  const ForwardOptions& options = ctx.options();
  if (options.row_source && options.row_values == RowValues::segments) return read_segment(ctx, input, body);
  Tensor y = ctx.tape() && options.checkpoint ? checkpointed_segment(ctx, input, body) : body(ctx, input);
  leave_segment(ctx, y);
  return y;
}

}  // namespace lockstep
