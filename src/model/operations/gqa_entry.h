// The cache entry of grouped queries: k [T, Hk * D] and v [T, Hk * value] become [rotated k | v]. Ranks have heads of it.
//   Tensor entry = gqa_entry(ctx, k, v, shape);
#pragma once
#include "kernels/attention/attention.h"
#include "model/context.h"

namespace lockstep {

Tensor gqa_entry(Context& ctx, const Tensor& k, const Tensor& v, const AttentionShape& shape);

}  // namespace lockstep
