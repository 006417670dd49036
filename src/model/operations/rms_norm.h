// RMSNorm of rows, of each head of a row, and of a residual as it is added. Ranks compute it whole: a row's norm is one sum, and a head weight's gradient a
// sum over heads. In the backward it adds its gradient, in the same pass, to what x has already of operations behind it, such as the residual's.
//   Tensor h = rms_norm(ctx, x, norm, 1e-6f);
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor rms_norm(Context& ctx, const Tensor& x, ParameterId w, float eps);
// x [T, heads * n], each head by itself; w [n] is shared by the heads.
Tensor rms_norm_heads(Context& ctx, const Tensor& x, ParameterId w, float eps);

// add(ctx, a, b) and the rms_norm of it by one launch, so that the sum is not read again from memory. All else, for observers, in the backward and in every
// bit, is that of the two operations.
struct SumAndNorm {
  Tensor sum, normed;
};
SumAndNorm add_rms_norm(Context& ctx, const Tensor& a, const Tensor& b, ParameterId w, float eps);

// The adjoint's launch over the rows of the tape; dw where the weights are not frozen. `onto`: to which dx is added, or none.
void launch_rms_norm_backward(Context& ctx, const View& dx, const View& dy, const View& x, ParameterId w, float eps, std::int64_t heads, const View& onto = {});

}  // namespace lockstep
