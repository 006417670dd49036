// The cache entry of grouped-query attention: k [T, Hk * D] and v [T, Hk * value] become [k | v], the first `rotary`
// columns of each key rotated. Ranks hold some of its heads.
//   Tensor entry = gqa_entry(ctx, k, v, shape, rotary);
#pragma once
#include "kernels/attention/attention.h"
#include "model/context.h"

namespace lockstep {

Tensor gqa_entry(Context& ctx, const Tensor& k, const Tensor& v, const AttentionShape& shape, std::int64_t rotary);

}  // namespace lockstep
