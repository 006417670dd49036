// The head under an adapter of the unembedding: the logits of rows are those of the weights plus the adapter's part, before anything
// else is made of them. Sums, losses and gradients of logits are the head's own, leaf by leaf (kernels/head/head_shard.h).
//   adapter_head_loss(context, head, model.head, rows, segment);
#pragma once
#include "model/adapter_rows.h"
#include "model/context.h"

namespace lockstep {

// Whether the adapter changes logits at all; else the kernels of the head do.
bool adapts_head(const AdapterWeights* adapter, ParameterId id);

// As the kernel head_loss, over rows of one adapter: `head`'s views are theirs. With head.dx the gradients of A and B are deposited in
// rows.gradients; `segment` is then the rows'. Logits of all rows never stand in memory together, there neither.
void adapter_head_loss(Context& context, const HeadLoss& head, ParameterId id, const AdapterRows& rows, const View& segment);

// Adds the adapter's part to logits y [n, V] of rows index[i] of hidden [T, K].
void adapter_head_logits(Context& context, const View& y, const View& hidden, const View& index, ParameterId id, const AdapterWeights& adapter);

}  // namespace lockstep
