// The one table of kernels: operation x instruction set. A kernel is one folder and one line here.
// Every kernel is a template over the virtual vector, instantiated per instruction set by the build (src/kernels/folder.cmake),
// and again over TracedVec for the proof of order.
#pragma once
#include <vector>

#include "base/thread_pool.h"
#include "kernels/instruction_set.h"
#include "numerics/isa/tiles.h"

#include "kernels/adjust/adjust.h"
#include "kernels/attention/attention.h"
#include "kernels/bias/bias.h"
#include "kernels/cache/cache.h"
#include "kernels/changes/changes.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/experts/experts.h"
#include "kernels/head/head.h"
#include "kernels/head/head_shard.h"
#include "kernels/index/index.h"
#include "kernels/layer_norm/layer_norm.h"
#include "kernels/linear/linear.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/ranks/ranks.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/router/router.h"
#include "kernels/sample/sample.h"
#include "kernels/sharing/sharing.h"
#include "kernels/top/top.h"
#include "kernels/value/value.h"

// X(kernel, arguments)
#define LOCKSTEP_KERNELS(X)                       \
  X(linear_forward, LinearForward)                \
  X(linear_backward_input, LinearBackwardInput)   \
  X(linear_backward_weight, LinearBackwardWeight) \
  X(embedding_forward, EmbeddingForward)          \
  X(embedding_backward, EmbeddingBackward)        \
  X(rms_norm_forward, RmsNormForward)             \
  X(rms_norm_backward, RmsNormBackward)           \
  X(layer_norm_forward, LayerNormForward)         \
  X(layer_norm_backward, LayerNormBackward)       \
  X(bias_add, BiasAdd)                            \
  X(bias_backward, BiasBackward)                  \
  X(add, Add)                                     \
  X(scale, Scale)                                 \
  X(swiglu_forward, SwigluForward)                \
  X(swiglu_backward, SwigluBackward)              \
  X(rope, Rope)                                   \
  X(cache_write, CacheWrite)                      \
  X(index_select, IndexSelect)                    \
  X(index_loss, IndexLoss)                        \
  X(attention_forward, AttentionForward)          \
  X(attention_backward, AttentionBackward)        \
  X(attention_target, AttentionTarget)            \
  X(attention_sinks, AttentionSinks)              \
  X(router_forward, RouterForward)                \
  X(router_backward, RouterBackward)              \
  X(router_load, RouterLoad)                      \
  X(expert_plan, ExpertPlan)                      \
  X(slot_ranges, SlotRanges)                      \
  X(expert_gather, ExpertGather)                  \
  X(expert_combine, ExpertCombine)                \
  X(expert_spread, ExpertSpread)                  \
  X(head_loss, HeadLoss)                          \
  X(head_weight, HeadWeight)                      \
  X(head_logits, HeadLogits)                      \
  X(head_shard_sums, HeadShardSums)               \
  X(head_shard_loss, HeadShardLoss)               \
  X(head_shard_gradient, HeadShardGradient)       \
  X(head_shard_entropy, HeadShardEntropy)         \
  X(head_shard_taught, HeadShardTaught)           \
  X(head_shard_divergence, HeadShardDivergence)   \
  X(adjust_logits, AdjustLogits)                  \
  X(sample, Sample)                               \
  X(top_tokens, TopTokens)                        \
  X(square_sum, SquareSum)                        \
  X(adamw, AdamW)                                 \
  X(finish_bins, FinishBins)                      \
  X(join_bins, JoinBins)                          \
  X(pick, Pick)                                   \
  X(gather_rows, GatherRows)                      \
  X(slot_source, SlotSource)                      \
  X(sum_shared_rows, SumSharedRows)               \
  X(value_loss, ValueLoss)                        \
  X(set_elements, SetElements)

namespace lockstep {

#define LOCKSTEP_DECLARE(kernel, Arguments) \
  template <class V>                        \
  void kernel(const Arguments&, ThreadPool&);
LOCKSTEP_KERNELS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

struct KernelTable {
#define LOCKSTEP_MEMBER(kernel, Arguments) void (*kernel)(const Arguments&, ThreadPool&);
  LOCKSTEP_KERNELS(LOCKSTEP_MEMBER)
#undef LOCKSTEP_MEMBER
};

// The table of an instruction set; `traced`: the same tiles over {value, hash}.
const KernelTable& kernel_table(InstructionSet isa, bool traced);
// The same, writable: for tests that plant a wrong kernel (kernels/planted_kernel_test_tools.h), and for profiles, which measure there (kernel_profile.h).
KernelTable& kernel_table_to_plant_in(InstructionSet isa, bool traced);

}  // namespace lockstep

// Ends an .inl: LOCKSTEP_INSTANTIATE(linear_forward, LinearForward)
#define LOCKSTEP_INSTANTIATE(kernel, Arguments) template void kernel<LOCKSTEP_VECTOR>(const Arguments&, ThreadPool&);
