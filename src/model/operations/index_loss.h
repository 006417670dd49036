// The loss by which an indexer learns (kernels/index/loss.h): its scores against the attention of the layers that use its selection.
//   if (learns_index(ctx)) record_index_loss(ctx, q, w, k, layer, heads, size, selection);
#pragma once
#include "model/operations/index_select.h"

namespace lockstep {

inline bool learns_index(Context& ctx) { return ctx.tape() && ctx.options().index_loss; }

// Runs in the backward; its KL, a value a row, is one of ctx.losses(). A target that the selection has is complete, and is taken out of it; else there is an
// empty one behind this, to which the layers that share the selection add their probabilities. The keys stand in the layer's cache.
void record_index_loss(Context& ctx, const Tensor& q, const Tensor& w, const Tensor& k, int layer, std::int64_t heads, std::int64_t size, Selection& selection);

}  // namespace lockstep
