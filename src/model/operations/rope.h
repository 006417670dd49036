// Rotary position embedding. A rank rotates its own heads; heads that are split across ranks are gathered first.
//   Tensor q = rope_heads(ctx, x, heads, size, rotary);
#pragma once
#include "model/context.h"

namespace lockstep {

// x [T, heads * size] with the first `rotary` columns of each head rotated.
Tensor rope_heads(Context& ctx, const Tensor& x, std::int64_t heads, std::int64_t size, std::int64_t rotary, RopeUse use = RopeUse::attention);

// The columns of heads: `rotary` of them rotate and `pass` are copied, from column x_offset + head * x_step of x to
// y_offset + head * y_step of y.
struct RopeColumns {
  std::int64_t heads = 1, rotary = 0, pass = 0, x_offset = 0, x_step = 0, y_offset = 0, y_step = 0;
  RopeUse use = RopeUse::attention;
  RopeColumns back() const { return {heads, rotary, pass, y_offset, y_step, x_offset, x_step, use}; }  // of the adjoint
};
void launch_rope(Context& ctx, const View& y, const View& x, const RopeColumns& columns);
// The adjoint of the same columns, over the rows of the tape.
void launch_rope_backward(Context& ctx, const View& dx, const View& dy, const RopeColumns& columns);

}  // namespace lockstep
