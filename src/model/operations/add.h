// A residual: y = a + b, whole on every rank.
//   Tensor after = add(ctx, x, attention_output);
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor add(Context& ctx, const Tensor& a, const Tensor& b);

// What follows the launch that wrote y = a + b, whichever kernel it was: observers see it, and it is recorded.
void finish_add(Context& ctx, Tensor& y, const Tensor& a, const Tensor& b);

}  // namespace lockstep
