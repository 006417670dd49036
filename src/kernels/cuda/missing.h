// Kernels without a CUDA form yet: a launch of one is refused with its name. Writing one is taking its line out.
#pragma once

#define LOCKSTEP_CUDA_MISSING(X) \
  X(router_forward, RouterForward) \
  X(router_backward, RouterBackward) \
  X(router_load, RouterLoad) \
  X(expert_plan, ExpertPlan) \
  X(slot_ranges, SlotRanges) \
  X(expert_gather, ExpertGather) \
  X(expert_combine, ExpertCombine) \
  X(expert_spread, ExpertSpread) \
  X(head_loss, HeadLoss) \
  X(head_weight, HeadWeight) \
  X(head_logits, HeadLogits) \
  X(head_shard_sums, HeadShardSums) \
  X(head_shard_loss, HeadShardLoss) \
  X(head_shard_gradient, HeadShardGradient) \
  X(head_shard_entropy, HeadShardEntropy) \
  X(adjust_logits, AdjustLogits) \
  X(sample, Sample) \
  X(top_tokens, TopTokens)
