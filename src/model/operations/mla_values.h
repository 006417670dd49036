// The values of absorbed latent attention: each head's latent sum times its W_uv.
//   Tensor v = mla_values(ctx, o, w_uv);   // [T, H * L] -> [T, H * v]
// Ranks hold some of the heads; adapters of kv_b add the product of one A for all heads and each head's B.
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor mla_values(Context& ctx, const Tensor& o, ParameterId w_uv);

}  // namespace lockstep
