// The CUDA form of top.h: one block per item, blocks taking items in turn.
#include "kernels/head/block_log_sum.h"
#include "kernels/sample/allowed.h"
#include "kernels/sample/block_ranks.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr std::int64_t kTopBlocks = 512;  // at most: each has scratch of its own

struct TopBody {
  static constexpr bool kCooperates = true;
  TopTokens op;
  std::int32_t* scratch;  // a block: K, K, and V ids where a mask stands
  std::int64_t block_scratch;
  static constexpr std::size_t kSharedBytes = kRankMemory + sizeof(LeafMemory);

  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    for (std::int64_t item = t.block(); item < op.id.rows; item += t.blocks()) {
      top_row(t, item);
      t.sync();
    }
  }

 private:
  LOCKSTEP_DEVICE void top_row(const Thread& t, std::int64_t item) const {
    std::int32_t* id = ints(op.id) + item * op.id.stride;
    float* logprob = floats(op.logprob) + item * op.logprob.stride;
    std::int32_t* order = scratch + t.block() * block_scratch;
    for (std::int64_t i = t.index(); i < op.id.cols; i += t.count()) id[i] = -1, logprob[i] = 0.0f;
    t.sync();
    const float* logits = floats(op.logits) + ints(op.row)[item * op.row.stride] * op.logits.stride;
    std::int64_t n = op.logits.cols;
    const std::int32_t* ids = nullptr;
    if (const std::int32_t* words = mask_words<Lane>(op.mask, op.mask_row, item)) {
      std::int32_t* list = order + 2 * op.id.cols;
      n = block_allowed(t, words, n, list, t.shared<std::int32_t>());
      if (n == 0) return;
      ids = list;
    }
    const auto z = [&](std::int64_t i) { return logits[ids ? ids[i] : i]; };
    const LogSum<Lane> sum = block_log_sum(t, n, op.maximum_leaves, z, *t.shared<LeafMemory>(kRankMemory));
    if (!is_finite<Lane>(sum.log_sum)) return;
    std::int64_t most = ints(op.count)[item * op.count.stride];
    if (most > op.id.cols) most = op.id.cols;
    if (most > n) most = n;
    if (most <= 0) return;
    const std::int32_t* ranked = rank_indices(
        t, n, most, [&](std::int64_t i) { return descending_key<Lane>(z(i)); }, order, order + op.id.cols, t.shared<std::int32_t>());
    for (std::int64_t i = t.index(); i < most; i += t.count()) {
      logprob[i] = z(ranked[i]) - sum.log_sum;
      id[i] = ids ? ids[ranked[i]] : ranked[i];
    }
  }
};
}  // namespace

void launch(const TopTokens& op, Grid& grid) {
  const std::int64_t blocks = op.id.rows < kTopBlocks ? op.id.rows : kTopBlocks, each = 2 * op.id.cols + (op.mask ? op.logits.cols : 0);
  grid.run(blocks, kBlockThreads, TopBody{op, grid.scratch<std::int32_t>(0, blocks * each), each}, TopBody::kSharedBytes);
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
