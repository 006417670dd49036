// The query of absorbed multi-head latent attention (kernels/attention): each head's [nope | rope] becomes [nope W_uk | rotated rope].
//   Tensor q = mla_query(ctx, linear(ctx, latent, q_b), w_uk, rotary);   // [T, H * (nope + R)] -> [T, H * (L + R)]
// Ranks hold some of its heads; adapters of kv_b add to the latent columns.
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor mla_query(Context& ctx, const Tensor& q, ParameterId w_uk, std::int64_t rotary);

}  // namespace lockstep
