// The indexer of sparse attention (kernels/index): writes its keys to the layer's index cache and selects top_k keys a row; with
// options().index_loss it trains by its own loss. Whole on every rank; never adapted.
//   Selection s = index_select(ctx, q, w, k, layer, heads, size, top_k);
#pragma once
#include "model/context.h"

namespace lockstep {

// The keys that rows attend to: positions ascending. Empty views: dense.
struct Selection {
  Tensor positions, count;
  Tensor target;  // index loss: attention probabilities of the layers that share this selection, summed
};

// Writes the batch's keys alone.
void write_index_keys(Context& ctx, const Tensor& k, int layer);

Selection index_select(Context& ctx, const Tensor& q, const Tensor& w, const Tensor& k, int layer, std::int64_t heads, std::int64_t size, std::int64_t top_k);

}  // namespace lockstep
