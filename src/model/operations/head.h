// The head: logits of hidden states over the vocabulary, and what is made of them. It has three forms, by how its weight is shared and
// whether an adapter stands on it:
//   whole     the fused kernels (kernels/head)
//   sharded   ranks share the vocabulary (ParameterSplit::vocabulary): each makes the logits of its tokens; of a row only small numbers a
//             leaf travel, and the gradient of the hidden state
//   adapted   logits are those of the weight plus the adapter's part, before anything else is made of them
// The last two make sums, losses and gradients of logits leaf by leaf (kernels/head/head_shard.h), with the bits of the first.
//   head_loss(ctx, head, model.head);
#pragma once
#include "kernels/head/head.h"
#include "model/adapter_rows.h"
#include "model/context.h"

namespace lockstep {

// As the kernel head_loss, with head.w = ctx.packed(id): where ranks share the vocabulary that is this rank's share, logits_chunk
// [chunk, its tokens], and all tensor-parallel ranks call together. `adapter`: whose rows these are, null: nobody's. With head.dx the gradients of its
// A and B are deposited in adapter->gradients, and `segment` is the rows'. Logits of all rows never stand in memory together.
void head_loss(Context& ctx, const HeadLoss& head, ParameterId id, const AdapterRows* adapter = nullptr, const View& segment = {});

// Logits y [n, V] of rows index[i] of hidden [T, K], without adapters, on every rank.
void head_logits(Context& ctx, const View& y, const View& hidden, const View& index, ParameterId id);
// Adds the part of an adapter of the head; null, or one of other matrices: nothing.
void add_adapter_logits(Context& ctx, const View& y, const View& hidden, const View& index, ParameterId id, const AdapterWeights* adapter);

}  // namespace lockstep
