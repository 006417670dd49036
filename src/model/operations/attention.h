// Attention over a layer's paged cache (kernels/attention): writes the batch's entries, then attends, in serving and in training alike.
// Ranks share groups of heads where each has a key, and else heads; in the latter case one entry serves all heads, and its gradient is a
// sum of blocks that each join all heads: backward is then made whole on every rank.
//   Tensor o = attention(ctx, q, entry, layer, nullptr, shape);   // [T, H * value]
#pragma once
#include "kernels/attention/attention.h"
#include "model/operations/index_select.h"

namespace lockstep {

// `selection` null: dense. With a target in it (index loss) this layer's probabilities are added there.
Tensor attention(Context& ctx, const Tensor& q, const Tensor& entry, int layer, const Selection* selection, const AttentionShape& shape);

}  // namespace lockstep
