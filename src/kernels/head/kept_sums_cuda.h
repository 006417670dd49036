// The CUDA form of kept_sums.h: bodies that divide rows by their temperatures and sum over kept tokens, in the CPU's orders.
#pragma once
#include "kernels/head/block_log_sum.h"
#include "kernels/head/kept_row.h"
#include "kernels/head/row_loss.h"
#include "kernels/sample/block_ranks.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

struct TemperRowsBody {
  static constexpr bool kCooperates = false;
  RowDistribution distribution;
  View z;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const float temperature = row_temperature<Lane>(distribution, t.block());
    if (temperature == 1.0f) return;
    float* row = floats(z) + t.block() * z.stride;
    for (std::int64_t i = t.index(); i < z.cols; i += t.count()) row[i] = row[i] / temperature;
  }
};

// Where a row's kept logits stand: in the whole row, or by leaf (kept_sums.h's each_leaf_place).
struct KeptLogits {
  View z;
  std::int64_t leaf_size = 0, width = 0;  // 0: the whole row
  LOCKSTEP_DEVICE float at(std::int64_t row, const std::int32_t* ids, std::int64_t count, std::int64_t i) const {
    const float* from = floats(z) + row * z.stride;
    if (leaf_size == 0) return from[ids[i]];
    const std::int64_t leaf = ids[i] / leaf_size;
    return from[leaf * width + i - first_id<Lane>(ids, count, leaf * leaf_size)];
  }
};

// The log of the sum of each row that keeps tokens and has a target, and the sum of p z over it: to sums [T, 2]. A block has rows in turn.
struct KeptSumsBody {
  static constexpr bool kCooperates = true;
  static constexpr int kArrays = 3;  // of most_kept numbers, a block's scratch; the first has room for a bitmap's ids
  static constexpr std::size_t kSharedBytes = kRankMemory + sizeof(LeafMemory);
  RowDistribution distribution;
  View target;
  KeptLogits logits;
  int maximum_leaves;
  float* sums;
  std::int32_t* scratch;

  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    for (std::int64_t row = t.block(); row < target.rows; row += t.blocks()) {
      sum_row(t, row);
      t.sync();
    }
  }

 private:
  LOCKSTEP_DEVICE void sum_row(const Thread& t, std::int64_t row) const {
    const KeptRow kept = kept_row<Lane>(distribution, row);
    if (!kept || !any_target<Lane>(target, row)) return;
    const std::int64_t n = kept.count;
    std::int32_t* arrays = scratch + t.block() * kArrays * distribution.most_kept;
    LeafMemory& leaves = *t.shared<LeafMemory>(kRankMemory);
    const std::int32_t* ids = kept.words;
    if (kept.bitmap) {
      block_allowed(t, kept.words, distribution.vocabulary, arrays, t.shared<std::int32_t>());
      ids = arrays;
    }
    const auto z = [&](std::int64_t i) { return logits.at(row, ids, n, i); };
    const float log = kept.by_rank ? ranked_log_sum(t, n, z, arrays) : block_log_sum(t, n, maximum_leaves, z, leaves).log_sum;
    const float entropy = block_entropy_sum(t, n, maximum_leaves, z, log, leaves);
    if (t.index() == 0) sums[row * 2] = log, sums[row * 2 + 1] = entropy;
  }

  template <class Z>
  LOCKSTEP_DEVICE float ranked_log_sum(const Thread& t, std::int64_t n, const Z& z, std::int32_t* arrays) const {
    std::int32_t *order = arrays + distribution.most_kept, *other = arrays + 2 * distribution.most_kept;
    const std::int32_t* ranked = rank_indices(
        t, n, n, [&](std::int64_t i) { return descending_key<Lane>(z(i)); }, order, other, t.shared<std::int32_t>());
    const float largest = z(ranked[0]);
    float* terms = reinterpret_cast<float*>(ranked == order ? other : order);
    for (std::int64_t i = t.index(); i < n; i += t.count()) terms[i] = exp_of(z(ranked[i]) - largest);
    t.sync();
    float sum = 0.0f;  // every thread the same
    for (std::int64_t i = 0; i < n; ++i) sum = sum + terms[i];
    t.sync();
    const float result = largest + log_of(sum);
    return is_finite<Lane>(result) ? result : result - result;
  }
};

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
