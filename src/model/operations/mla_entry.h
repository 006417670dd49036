// The cache entry of latent attention: kv [T, L + R] becomes [norm(latent) | rotated key]. One entry serves all heads: whole on every rank.
//   Tensor entry = mla_entry(ctx, linear(ctx, h, kv_a), kv_a_norm, 1e-6f, rotary);
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor mla_entry(Context& ctx, const Tensor& kv, ParameterId norm, float eps, std::int64_t rotary);

}  // namespace lockstep
