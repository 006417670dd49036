// A residual: y = a + b, whole on every rank.
//   Tensor after = add(ctx, x, attention_output);
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor add(Context& ctx, const Tensor& a, const Tensor& b);

}  // namespace lockstep
