// The log-sum-exp of one row of logits, in the order given in head.h: shared by the trainer's and the
// sampler's log-probability, so that their bits are the same.
//   const LogSum<V> row = log_sum<V>(logits, vocabulary, maximum_leaves); logprob = logits[target] - row.log_sum
// A row with a NaN, a +infinity or a leaf of only -infinity has log_sum NaN. Included by the .inl of head/ and sample/; every function is a template
// over V. The CUDA form is block_log_sum.h, which joins leaves with the code here.
#pragma once
#include "kernels/row_tools.h"

namespace lockstep {

template <class V>
struct LogSum {
  typename V::Elem maximum, log_sum;
};

template <class V>
LOCKSTEP_EVERYWHERE inline bool is_finite(const typename V::Elem& x) {
  return value_of(x) - value_of(x) == 0.0f;
}

// Largest of n >= 1 elements: 16 lanes as in dot16, then lanes i and i + 8, + 4, + 2, + 1.
template <class V>
inline typename V::Elem row_maximum(const typename V::Elem* z, std::int64_t n) {
  typename V::Elem lane[16];
  if (n >= 16) {
    V largest = V::load(z);
    std::int64_t i = 16;
    for (; i + 16 <= n; i += 16) largest = max(largest, V::load(z + i));
    largest.store(lane);
    for (int l = 0; i + l < n; ++l) lane[l] = lane[l] > z[i + l] ? lane[l] : z[i + l];
  } else {
    for (std::int64_t l = 0; l < 16; ++l) lane[l] = z[l < n ? l : 0];
  }
  for (int half = 8; half >= 1; half /= 2)
    for (int l = 0; l < half; ++l) lane[l] = lane[l] > lane[l + half] ? lane[l] : lane[l + half];
  return lane[0];
}

// Maximum and sum of exponentials of one leaf of n logits.
template <class V>
inline void leaf_sum(const typename V::Elem* part, std::int64_t n, typename V::Elem& m, typename V::Elem& s) {
  m = row_maximum<V>(part, n);
  const V largest = V::set1(m), one = V::set1(1.0f);
  s = dot16_of<V>(
      n, [&](std::int64_t, int) { return one; }, [&](std::int64_t i, int lanes) { return exp(V::load_partial(part + i, lanes) - largest); });
}

// Joins the leaves' maxima and sums, which are overwritten.
template <class V>
LOCKSTEP_EVERYWHERE inline LogSum<V> join_leaf_sums(typename V::Elem* m, typename V::Elem* s, int leaves) {
  using Elem = typename V::Elem;
  constexpr int kWidth = static_cast<int>(sizeof(V) / sizeof(Elem));  // 16; of a GPU's lane 1
  for (int count = leaves; count > 1; count /= 2) {
    Elem scale[16];  // the exponentials of a level fit one vector
    for (int i = 0; i < 16; ++i) scale[i] = element<Elem>(0.0f);
    for (int i = 0; i < count; i += 2) {
      const Elem larger = m[i] > m[i + 1] ? m[i] : m[i + 1];
      scale[i] = m[i] - larger;
      scale[i + 1] = m[i + 1] - larger;
      m[i / 2] = larger;
    }
    for (int i = 0; i < count; i += kWidth) exp(V::load(scale + i)).store(scale + i);
    for (int i = 0; i < count; i += 2) s[i / 2] = fused(s[i], scale[i], s[i + 1] * scale[i + 1]);
  }
  Elem result = m[0] + log_element<V>(s[0]);
  if (!is_finite<V>(result)) result = result - result;  // infinities and NaN alike
  return {m[0], result};
}

// One leaf's part of sum p z, p = exp(z - log_sum).
template <class V>
inline typename V::Elem leaf_entropy(const typename V::Elem* z, std::int64_t n, const V& log_sum) {
  return dot16_of<V>(
      n, [&](std::int64_t i, int lanes) { return exp(V::load_partial(z + i, lanes) - log_sum); },
      [&](std::int64_t i, int lanes) { return V::load_partial(z + i, lanes); });
}

template <class V>
inline LogSum<V> log_sum(const typename V::Elem* z, std::int64_t n, int maximum_leaves) {
  const int leaves = leaf_count(n, maximum_leaves);
  const std::int64_t size = n / leaves;
  typename V::Elem m[16], s[16];
  for (int leaf = 0; leaf < leaves; ++leaf) leaf_sum<V>(z + leaf * size, size, m[leaf], s[leaf]);
  return join_leaf_sums<V>(m, s, leaves);
}

}  // namespace lockstep
