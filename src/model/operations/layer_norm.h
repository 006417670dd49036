// A layer norm with weight and bias, whole on every rank.
//   Tensor k = layer_norm(ctx, x, weight, bias, 1e-6f);
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor layer_norm(Context& ctx, const Tensor& x, ParameterId w, ParameterId b, float eps);

}  // namespace lockstep
