// RMSNorms of two activations, side by side in one row: the input of a layer of multi-token prediction. Whole on every rank.
//   Tensor u = linear(ctx, join_norms(ctx, embedded, hidden, enorm, hnorm, 1e-6f), eh_proj);   // [T, a + b]
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor join_norms(Context& ctx, const Tensor& left, const Tensor& right, ParameterId left_norm, ParameterId right_norm, float eps);

}  // namespace lockstep
