// Implementation of head_shard.h, included by head.inl.
#pragma once

namespace lockstep {

template <class V>
void head_shard_sums(const HeadShardSums& op, ThreadPool& pool) {
  const std::int64_t size = op.z.cols / op.leaves, width = 2 + op.target.cols;
  pool.run((op.z.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.z.rows, block * 16 + 16); ++t) {
      const auto* z = elements<V>(op.z) + t * op.z.stride;
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
  const RowGradient rows{op.target, op.slope, op.log_sum, op.row_entropy, op.entropy_slope};
  pool.run((op.z.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.z.rows, block * 16 + 16); ++t) {
      Elem* z = elements<V>(op.z) + t * op.z.stride;
      if (op.entropy) {
        const std::int64_t leaves = op.entropy.cols, size = n / leaves;
        const bool scored = any_target<V>(op.target, t);
        const V lanes = V::set1(elements<V>(op.log_sum)[t * op.log_sum.stride]);
        Elem* entropy = elements<V>(op.entropy) + t * op.entropy.stride;
        for (std::int64_t leaf = 0; leaf < leaves; ++leaf)
          entropy[leaf] = scored ? leaf_entropy<V>(z + leaf * size, size, lanes) : element<Elem>(0.0f);
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
      const Elem entropy = any_target<V>(op.target, t) ? log - join_pairwise(sums, static_cast<int>(op.sums.cols)) : element<Elem>(0.0f);
      elements<V>(op.entropy)[t * op.entropy.stride] = entropy;
      take_entropy_bonus<V>(op.loss, op.entropy_slope, entropy, t);
    }
  });
}

}  // namespace lockstep
