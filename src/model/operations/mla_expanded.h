// Query and cache entry of expanded latent attention: each head has its own key [nope | rotated rope] and value, made of the latent entry.
//   Tensor q = mla_head_query(ctx, linear(ctx, latent, q_b), shape, rotary);             // [T, H * (nope + R)], the rope of each head rotated
//   Tensor entry = mla_head_entry(ctx, mla_entry(ctx, kv, norm, eps, rotary), w_uk, w_uv, rotary);  // [T, L + R] -> [keys of all heads | values]
// A head's key is [chain(G(L)) of latent W_uk | the rope key, which all heads share], its value chain(G(L)) of latent W_uv. Backward, a latent
// column takes the finished sums of the keys of all heads, ascending, by plain adds, then those of the values; a rope column the keys' alone.
// Ranks hold some of the heads; adapters of kv_b add u B_k and u B_v, with one u = s (latent A) for all.
#pragma once
#include "kernels/attention/attention.h"
#include "model/context.h"

namespace lockstep {

Tensor mla_head_query(Context& ctx, const Tensor& q, const AttentionShape& shape, std::int64_t rotary);
Tensor mla_head_entry(Context& ctx, const Tensor& latent, ParameterId w_uk, ParameterId w_uv, std::int64_t rotary);

}  // namespace lockstep
