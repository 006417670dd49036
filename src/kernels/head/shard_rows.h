// Implementation of head_shard.h, included by head.inl.
#pragma once
#include "kernels/head/teacher_rows.h"

namespace lockstep {

// The logits of a row's kept tokens by id, from their places by leaf.
template <class V>
inline typename V::Elem* kept_of_leaves(const KeptRow& row, const RowDistribution& of, const View& kept, std::int64_t leaves, std::int64_t t) {
  typename V::Elem* values = kept_room<V>(row);
  const typename V::Elem* from = elements<V>(kept) + t * kept.stride;
  each_leaf_place<V>(row, kept_ids<V>(row, of.vocabulary), of.vocabulary / leaves, kept.cols / leaves, 0, leaves,
                     [&](std::int64_t i, std::int64_t place) { values[i] = from[place]; });
  return values;
}

template <class V>
void head_shard_sums(const HeadShardSums& op, ThreadPool& pool) {
  const std::int64_t size = op.z.cols / op.leaves, width = 2 + op.target.cols;
  pool.run((op.z.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.z.rows, block * 16 + 16); ++t) {
      auto* z = elements<V>(op.z) + t * op.z.stride;
      temper_row<V>(op.distribution, t, z, op.z.cols);
      if (const KeptRow row = kept_row<V>(op.distribution, t); row && any_target<V>(op.target, t)) {
        const std::int32_t* ids = kept_ids<V>(row, op.distribution.vocabulary);
        auto* kept = elements<V>(op.kept) + t * op.kept.stride;
        each_leaf_place<V>(row, ids, size, op.kept.cols / op.leaves, op.first / size, op.first / size + op.leaves,
                           [&](std::int64_t i, std::int64_t place) { kept[place] = z[ids[i] - op.first]; });
      }
      auto* sums = elements<V>(op.sums) + t * op.sums.stride;
      for (std::int64_t leaf = 0; leaf < op.leaves; ++leaf, sums += width) {
        leaf_sum<V>(z + leaf * size, size, sums[0], sums[1]);
        for (std::int64_t k = 0; k < op.target.cols; ++k) {
          const std::int64_t target = ints(op.target)[t * op.target.stride + k] - op.first;
          sums[2 + k] = target >= leaf * size && target < (leaf + 1) * size ? z[target] : element<typename V::Elem>(0.0f);
        }
      }
    }
  });
}

template <class V>
void head_shard_loss(const HeadShardLoss& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const std::int64_t width = 2 + op.target.cols;
  const auto leaves = static_cast<int>(op.sums.cols / width);
  pool.run((op.sums.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.sums.rows, block * 16 + 16); ++t) {
      const Elem* sums = elements<V>(op.sums) + t * op.sums.stride;
      Elem log = element<Elem>(0.0f);
      if (any_target<V>(op.target, t)) {
        Elem m[16], s[16];
        for (int leaf = 0; leaf < leaves; ++leaf) m[leaf] = sums[width * leaf], s[leaf] = sums[width * leaf + 1];
        log = join_leaf_sums<V>(m, s, leaves).log_sum;
        if (const KeptRow row = kept_row<V>(op.distribution, t))
          log = kept_log_sum<V>(row, kept_of_leaves<V>(row, op.distribution, op.kept, leaves, t), op.maximum_leaves);
        if (!is_finite<V>(log) && op.flags) ints(op.flags)[t * op.flags.stride] |= 1 << 2;
      }
      row_losses<V>(op, t, log, [&](std::int64_t k) {
        const std::int64_t leaf = ints(op.target)[t * op.target.stride + k] / (op.vocabulary / leaves);
        return sums[width * leaf + 2 + k];
      });
      elements<V>(op.log_sum)[t * op.log_sum.stride] = log;
    }
  });
}

template <class V>
void head_shard_gradient(const HeadShardGradient& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const std::int64_t n = op.z.cols;
  const RowGradient rows{op.target, op.slope, op.log_sum, op.row_entropy, op.entropy_slope, op.distribution};
  pool.run((op.z.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.z.rows, block * 16 + 16); ++t) {
      Elem* z = elements<V>(op.z) + t * op.z.stride;
      if (!op.tempered) temper_row<V>(op.distribution, t, z, n);
      if (op.entropy) {
        const std::int64_t leaves = op.entropy.cols, size = n / leaves;
        const bool scored = any_target<V>(op.target, t);
        const V lanes = V::set1(elements<V>(op.log_sum)[t * op.log_sum.stride]);
        Elem* entropy = elements<V>(op.entropy) + t * op.entropy.stride;
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf) entropy[leaf] = scored ? leaf_entropy<V>(z + leaf * size, size, lanes) : element<Elem>(0.0f);
      }
      if (op.gradient) row_gradient<V>(rows, t, z, n, op.first);
    }
  });
}

template <class V>
void head_shard_entropy(const HeadShardEntropy& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  pool.run((op.entropy.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.entropy.rows, block * 16 + 16); ++t) {
      Elem* sums = elements<V>(op.sums) + t * op.sums.stride;
      const Elem log = elements<V>(op.log_sum)[t * op.log_sum.stride];
      Elem entropy = element<Elem>(0.0f);
      if (any_target<V>(op.target, t)) {
        const KeptRow row = kept_row<V>(op.distribution, t);
        entropy = log - (row ? kept_entropy_sum<V>(row, kept_of_leaves<V>(row, op.distribution, op.kept, op.sums.cols, t), log, op.maximum_leaves)
                             : join_pairwise(sums, static_cast<int>(op.sums.cols)));
      }
      elements<V>(op.entropy)[t * op.entropy.stride] = entropy;
      take_entropy_bonus<V>(op.loss, op.entropy_slope, entropy, t);
    }
  });
}

template <class V>
void head_shard_taught(const HeadShardTaught& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const Divergence kind = op.teacher.divergence;
  const std::int64_t n = op.z.cols, sums_a_leaf = divergence_sums(kind), leaves = op.sums ? op.sums.cols / sums_a_leaf : 1, size = n / leaves;
  const TaughtGradient gradient{op.slope, op.log_sum, op.teacher};
  const auto at = [](const View& v, std::int64_t t) { return elements<V>(v)[t * v.stride]; };
  pool.run((op.z.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.z.rows, block * 16 + 16); ++t) {
      Elem* z = elements<V>(op.z) + t * op.z.stride;
      const Elem* y = elements<V>(op.y) + t * op.y.stride;
      if (!op.sums) {
        taught_gradient<V>(gradient, t, z, y, n);
        continue;
      }
      const bool scored = any_target<V>(op.target, t);
      const V of_z = V::set1(at(op.log_sum, t)), of_y = V::set1(at(op.teacher.log_sum, t));
      Elem* sums = elements<V>(op.sums) + t * op.sums.stride;
      for (std::int64_t leaf = 0; leaf < leaves; ++leaf)
        for (std::int64_t i = 0; i < sums_a_leaf; ++i)
          sums[leaf * sums_a_leaf + i] = scored ? divergence_leaf<V>(kind, i == 1, z + leaf * size, y + leaf * size, size, of_z, of_y) : element<Elem>(0.0f);
    }
  });
}

template <class V>
void head_shard_divergence(const HeadShardDivergence& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const std::int64_t sums_a_leaf = divergence_sums(op.teacher.divergence);
  const auto leaves = static_cast<int>(op.sums.cols / sums_a_leaf);
  pool.run((op.sums.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.sums.rows, block * 16 + 16); ++t) {
      const bool scored = any_target<V>(op.target, t);
      const Elem* sums = elements<V>(op.sums) + t * op.sums.stride;
      Elem log = element<Elem>(0.0f), joined[2] = {log, log};
      if (scored) log = elements<V>(op.teacher.log_sum)[t * op.teacher.log_sum.stride];
      for (std::int64_t i = 0; scored && i < sums_a_leaf; ++i) {
        Elem part[16];
        for (int leaf = 0; leaf < leaves; ++leaf) part[leaf] = sums[leaf * sums_a_leaf + i];
        joined[i] = join_pairwise(part, leaves);
      }
      put_divergence<V>(op, t, scored, log, joined[0], joined[1]);
    }
  });
}

}  // namespace lockstep
