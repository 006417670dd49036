// RMSNorm of rows, and of each head of a row. Ranks compute it whole: a row's norm is one sum, and a head weight's gradient a sum over heads.
//   Tensor h = rms_norm(ctx, x, norm, 1e-6f);
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor rms_norm(Context& ctx, const Tensor& x, ParameterId w, float eps);
// x [T, heads * n], each head by itself; w [n] is shared by the heads.
Tensor rms_norm_heads(Context& ctx, const Tensor& x, ParameterId w, float eps);

// The adjoint's launch over the rows of the tape; dw where the weights are not frozen.
void launch_rms_norm_backward(Context& ctx, const View& dx, const View& dy, const View& x, ParameterId w, float eps, std::int64_t heads);

}  // namespace lockstep
