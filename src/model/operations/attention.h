// Attention over a layer's paged cache (kernels/attention): writes the batch's entries, then attends; the same in serving and training.
//   Tensor o = attention(ctx, q, entry, layer, nullptr, shape);   // [T, H * value]
// Ranks split groups of heads where each group has its own key, else single heads. In the latter case one entry serves all heads, and its gradient is
// a sum over all heads in every block, so every rank computes the whole backward.
#pragma once
#include "kernels/attention/attention.h"
#include "model/operations/index_select.h"

namespace lockstep {

// `selection` null: dense. If it has a target (index loss), this layer's probabilities are added there.
// `sinks`: a logit a head; -1: none.
Tensor attention(Context& ctx, const Tensor& q, const Tensor& entry, int layer, const Selection* selection, const AttentionShape& shape,
                 ParameterId sinks = -1);
// Writes the batch's entries alone.
void write_entries(Context& ctx, const Tensor& entry, int layer);
// Attention to entries that an earlier call with these rows has already written to the cache. `entry` is that call's, and its gradient also gets this
// call's part. Nothing is written.
Tensor attention_again(Context& ctx, const Tensor& q, const Tensor& entry, int layer, const Selection* selection, const AttentionShape& shape);

}  // namespace lockstep
