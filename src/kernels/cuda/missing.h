// Kernels without a CUDA form yet: a launch of one is refused with its name. Writing one is taking its line out.
#pragma once

#define LOCKSTEP_CUDA_MISSING(X) \
  X(linear_forward, LinearForward) \
  X(linear_backward_input, LinearBackwardInput) \
  X(linear_backward_weight, LinearBackwardWeight) \
  X(embedding_forward, EmbeddingForward) \
  X(embedding_backward, EmbeddingBackward) \
  X(layer_norm_forward, LayerNormForward) \
  X(layer_norm_backward, LayerNormBackward) \
  X(rope, Rope) \
  X(cache_write, CacheWrite) \
  X(index_select, IndexSelect) \
  X(index_loss, IndexLoss) \
  X(attention_forward, AttentionForward) \
  X(attention_backward, AttentionBackward) \
  X(attention_target, AttentionTarget) \
  X(square_sum, SquareSum) \
  X(adamw, AdamW) \
  X(finish_bins, FinishBins) \
  X(join_bins, JoinBins) \
  X(pick, Pick) \
  X(gather_rows, GatherRows) \
  X(slot_source, SlotSource) \
  X(sum_shared_rows, SumSharedRows)
