#include "model/rank_head.h"

#include <algorithm>

#include "model/sharding.h"

namespace lockstep {

namespace {
// Columns of the leaves of each rank, `width` numbers a leaf.
ColumnSplit leaf_columns(const Sharding& sharding, ParameterId id, std::int64_t width) {
  std::vector<std::int64_t> bounds = deal(sharding.leaves(id), sharding.place().layout.tp);
  for (std::int64_t& b : bounds) b *= width;
  return std::make_shared<const std::vector<std::int64_t>>(std::move(bounds));
}
View own_part(const View& all, const ColumnSplit& split, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  return all.column_range((*split)[at], (*split)[at + 1] - (*split)[at]);
}
}  // namespace

void head_loss_of_ranks(Context& context, const HeadLoss& head, ParameterId id) {
  Backend& backend = context.backend();
  const Sharding& sharding = *context.sharding();
  const int rank = sharding.tensor().rank();
  const std::int64_t leaves = sharding.leaves(id), own = sharding.own_leaves(id), vocabulary = sharding.bounds(id)->back();
  const ColumnSplit small = leaf_columns(sharding, id, 2 + head.target.cols), singles = leaf_columns(sharding, id, 1);
  for (std::int64_t begin = 0; begin < head.x.rows; begin += head.logits_chunk.rows) {
    const std::int64_t rows = std::min(head.x.rows - begin, head.logits_chunk.rows);
    const auto part = [&](const View& v) { return v ? v.row_range(begin, rows) : View{}; };
    const auto buffer = [&](std::int64_t cols) { return context.allocate(DType::f32, rows, cols, MemoryCategory::workspace); };
    const View z = head.logits_chunk.row_range(0, rows), x = part(head.x), target = part(head.target);
    const Buffer sums = buffer((2 + head.target.cols) * leaves), entropies = buffer(leaves), own_log_sum = head.log_sum ? Buffer() : buffer(1), own_slope = head.slope ? Buffer() : buffer(head.target.cols);
    const View log_sum = head.log_sum ? part(head.log_sum) : own_log_sum.view(), slope = head.slope ? part(head.slope) : own_slope.view();
    if (own > 0) {
      LinearForward logits{z, x, head.w};
      logits.round_input_bf16 = head.round_input_bf16;
      backend.launch(&KernelTable::linear_forward, logits);
      backend.launch(&KernelTable::head_shard_sums, HeadShardSums{own_part(sums.view(), small, rank), z, target, sharding.begin(id), own});
    }
    context.gather_columns(sums.view(), own_part(sums.view(), small, rank), small);
    const View entropy = part(head.entropy), entropy_slope = part(head.entropy_slope), loss = part(head.loss);
    backend.launch(&KernelTable::head_shard_loss,
                   HeadShardLoss{log_sum, slope, part(head.logprob), loss, part(head.marks), part(head.flags), entropy_slope, sums.view(), target, vocabulary,
                                 head.objective.row_range(begin, rows)});
    // Gradients with an entropy bonus wait for the entropy.
    const bool gradient = static_cast<bool>(head.dx), bonus = gradient && entropy_slope;
    if (own > 0)
      backend.launch(&KernelTable::head_shard_gradient,
                     HeadShardGradient{z, own_part(entropies.view(), singles, rank), log_sum, slope, target, sharding.begin(id), gradient && !bonus});
    if (entropy) {
      context.gather_columns(entropies.view(), own_part(entropies.view(), singles, rank), singles);
      backend.launch(&KernelTable::head_shard_entropy, HeadShardEntropy{entropy, entropies.view(), log_sum, target, loss, entropy_slope});
    }
    if (bonus && own > 0)
      backend.launch(&KernelTable::head_shard_gradient, HeadShardGradient{z, {}, log_sum, slope, target, sharding.begin(id), true, entropy, entropy_slope});
    if (head.dx) {
      if (own > 0) backend.launch(&KernelTable::linear_backward_input, LinearBackwardInput{part(head.dx), z, context.packed_share(id)});
      context.join_leaves(part(head.dx), id);
    }
  }
}

void head_logits_of_ranks(Context& context, const HeadLogits& head, ParameterId id) {
  const ColumnSplit& split = context.sharding()->bounds(id);
  HeadLogits own = head;
  own.y = own_part(head.y, split, context.sharding()->tensor().rank());
  if (own.y.cols > 0) context.backend().launch(&KernelTable::head_logits, own);
  context.gather_columns(head.y, own.y, split);
}

}  // namespace lockstep
