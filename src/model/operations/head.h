// The head: logits of hidden states over the vocabulary, and losses and log-probabilities of them.
//   head_loss(ctx, head, model.head);
// It has three forms, by how its weight is split and whether it has an adapter:
//  whole     the fused kernels (kernels/head)
//  sharded   ranks split the vocabulary (ParameterSplit::vocabulary): each makes the logits of its tokens; ranks exchange only a few numbers
//  per row and leaf, and the gradient of the hidden state
//  adapted   the adapter's part is added to the weight's logits before anything else is computed from them
// The last two compute sums, losses and gradients leaf by leaf (kernels/head/head_shard.h), with the bits of the first. Rows with a teacher
// (kernels/head/teacher.h) are of the first two, each rank with the teacher's whole head.
#pragma once
#include "kernels/head/head.h"
#include "model/adapter_rows.h"
#include "model/context.h"

namespace lockstep {

// As the kernel head_loss, with head.w = ctx.packed(id): where ranks split the vocabulary that is this rank's share, logits_chunk is
// [chunk, its tokens], and all tensor-parallel ranks call together. `adapter`: the adapter of these rows, or null. With head.dx, gradients of its
// A and B are deposited in adapter->gradients, and `segment` is the rows'. The logits of all rows are never in memory at once. Error unsupported: a teacher of
// rows whose head is adapted, or whose vocabulary is cut inside a group of 16 tokens.
void head_loss(Context& ctx, const HeadLoss& head, ParameterId id, const AdapterRows* adapter = nullptr, const View& segment = {});

// The kernel head_weight, launched for a range of tokens at a time where a pause point wants short kernels; a token's sums do not depend on others'.
// all.teacher.w is the teacher's whole head.
void head_weight(Backend& backend, const HeadWeight& all);

// Logits y [n, V] of rows index[i] of hidden [T, K], without adapters, on every rank.
void head_logits(Context& ctx, const View& y, const View& hidden, const View& index, ParameterId id);
// Adds an adapter's part of the logits; nothing if it is null or does not adapt the head.
void add_adapter_logits(Context& ctx, const View& y, const View& hidden, const View& index, ParameterId id, const AdapterWeights* adapter);
// dx [n, K], the gradient of hidden states whose logits have the gradient dz [n, V], which every rank has; `adapter` as above. All tensor-parallel ranks
// call together.
void head_input_gradient(Context& ctx, const View& dx, const View& dz, ParameterId id, const AdapterWeights* adapter = nullptr);

}  // namespace lockstep
