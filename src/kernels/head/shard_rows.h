// Implementation of head_shard.h, included by head.inl.
#pragma once

namespace lockstep {

template <class V>
void head_shard_sums(const HeadShardSums& op, ThreadPool& pool) {
  const std::int64_t size = op.z.cols / op.leaves;
  pool.run((op.z.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.z.rows, block * 16 + 16); ++t) {
      const auto* z = elements<V>(op.z) + t * op.z.stride;
      auto* sums = elements<V>(op.sums) + t * op.sums.stride;
      const std::int64_t target = ints(op.target)[t * op.target.stride] - op.first;
      for (std::int64_t leaf = 0; leaf < op.leaves; ++leaf) {
        leaf_sum<V>(z + leaf * size, size, sums[3 * leaf], sums[3 * leaf + 1]);
        sums[3 * leaf + 2] = element<typename V::Elem>(0.0f);
        if (target >= leaf * size && target < (leaf + 1) * size) sums[3 * leaf + 2] = z[target];
      }
    }
  });
}

template <class V>
void head_shard_loss(const HeadShardLoss& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const auto leaves = static_cast<int>(op.sums.cols / 3);
  const Elem zero = element<Elem>(0.0f);
  pool.run((op.sums.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.sums.rows, block * 16 + 16); ++t) {
      const auto put = [t](const View& v, const Elem& x) {
        if (v) elements<V>(v)[t * v.stride] = x;
      };
      const std::int32_t target = ints(op.target)[t * op.target.stride];
      Elem log = zero, logprob = zero;
      RowLoss<V> result{zero, zero};
      if (target >= 0) {
        Elem m[16], s[16];
        const Elem* sums = elements<V>(op.sums) + t * op.sums.stride;
        for (int leaf = 0; leaf < leaves; ++leaf) m[leaf] = sums[3 * leaf], s[leaf] = sums[3 * leaf + 1];
        log = join_leaf_sums<V>(m, s, leaves).log_sum;
        if (!is_finite<V>(log) && op.flags) ints(op.flags)[t * op.flags.stride] |= 1 << 2;
        logprob = sums[3 * (target / (op.vocabulary / leaves)) + 2] - log;
        result = row_loss<V>(op, t, logprob);
      }
      put(op.log_sum, log);
      put(op.slope, result.slope);
      put(op.logprob, logprob);
      put(op.loss, result.loss);
    }
  });
}

template <class V>
void head_shard_gradient(const HeadShardGradient& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const std::int64_t n = op.z.cols, leaves = op.entropy.cols, size = n / leaves;
  pool.run((op.z.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.z.rows, block * 16 + 16); ++t) {
      Elem* z = elements<V>(op.z) + t * op.z.stride;
      const std::int32_t target = ints(op.target)[t * op.target.stride];
      const Elem log = elements<V>(op.log_sum)[t * op.log_sum.stride], slope = elements<V>(op.slope)[t * op.slope.stride];
      const V lanes = V::set1(log);
      Elem* entropy = elements<V>(op.entropy) + t * op.entropy.stride;
      for (std::int64_t leaf = 0; leaf < leaves; ++leaf)
        entropy[leaf] = target < 0 ? element<Elem>(0.0f) : leaf_entropy<V>(z + leaf * size, size, lanes);
      if (op.gradient) row_gradient<V>(z, n, target - op.first, slope, log);
    }
  });
}

template <class V>
void head_shard_entropy(const HeadShardEntropy& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  pool.run((op.entropy.rows + 15) / 16, [&](std::int64_t block) {
    for (std::int64_t t = block * 16; t < std::min(op.entropy.rows, block * 16 + 16); ++t) {
      const bool scored = ints(op.target)[t * op.target.stride] >= 0;
      Elem* sums = elements<V>(op.sums) + t * op.sums.stride;
      const Elem log = elements<V>(op.log_sum)[t * op.log_sum.stride];
      elements<V>(op.entropy)[t * op.entropy.stride] = scored ? log - join_pairwise(sums, static_cast<int>(op.sums.cols)) : element<Elem>(0.0f);
    }
  });
}

}  // namespace lockstep
