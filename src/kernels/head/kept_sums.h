// The CPU's sums over rows of logits under a temperature and over kept tokens (row_distribution.h): shared by the whole head and a rank's share.
// Included by head.inl; every function is a template over V. The CUDA form is kept_sums_cuda.h.
#pragma once
#include "kernels/head/kept_row.h"
#include "kernels/head/log_sum.h"
#include "kernels/sample/allowed.h"
#include "kernels/sample/noise.h"

namespace lockstep {

// Divides row t by its temperature.
template <class V>
inline void temper_row(const RowDistribution& of, std::int64_t t, typename V::Elem* z, std::int64_t n) {
  if (row_temperature<V>(of, t) == 1.0f) return;
  const V divisor = V::set1(elements<V>(of.temperature)[t * of.temperature.stride]);
  for (std::int64_t i = 0; i < n; i += 16) {
    const int lanes = lanes_left(n, i);
    (V::load_partial(z + i, lanes) / divisor).store_partial(z + i, lanes);
  }
}

// The row's ids, ascending; a bitmap's are written to this thread's scratch of integers.
template <class V>
inline const std::int32_t* kept_ids(const KeptRow& row, std::int64_t vocabulary) {
  if (!row.bitmap) return row.words;
  std::int32_t* ids = thread_scratch<std::int32_t>(static_cast<std::size_t>(vocabulary));
  allowed_tokens<V>(row.words, vocabulary, ids);
  return ids;
}

// Room for what the sums below are made from: this thread's scratch of numbers.
template <class V>
inline typename V::Elem* kept_room(const KeptRow& row) {
  return thread_scratch<typename V::Elem>(static_cast<std::size_t>(3 * row.count));
}

// The log of the sum over kept tokens, of z gathered by id: values[0 .. count), the beginning of kept_room().
template <class V>
inline typename V::Elem kept_log_sum(const KeptRow& row, typename V::Elem* values, int maximum_leaves) {
  using Elem = typename V::Elem;
  const std::int64_t n = row.count;
  if (!row.by_rank) return log_sum<V>(values, n, maximum_leaves).log_sum;
  std::uint64_t* order = thread_scratch<std::uint64_t>(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) order[i] = static_cast<std::uint64_t>(descending_key<V>(value_of(values[i]))) << 32 | static_cast<std::uint32_t>(i);
  std::sort(order, order + n);
  Elem *ranked = values + n, *running = values + 2 * n;
  for (std::int64_t i = 0; i < n; ++i) ranked[i] = values[static_cast<std::uint32_t>(order[i])];
  for (std::int64_t i = 0; i < n; i += 16) {
    const int lanes = lanes_left(n, i);
    exp(V::load_partial(ranked + i, lanes) - V::set1(ranked[0])).store_partial(running + i, lanes);
  }
  Elem sum = element<Elem>(0.0f);
  for (std::int64_t i = 0; i < n; ++i) sum = sum + running[i];
  const Elem result = ranked[0] + log_element<V>(sum);
  return is_finite<V>(result) ? result : result - result;
}

// The sum of p z over the same numbers, p = exp(z - log_sum).
template <class V>
inline typename V::Elem kept_entropy_sum(const KeptRow& row, const typename V::Elem* values, const typename V::Elem& log_sum, int maximum_leaves) {
  const int leaves = leaf_count(row.count, maximum_leaves);
  const std::int64_t size = row.count / leaves;
  typename V::Elem part[16];
  for (int leaf = 0; leaf < leaves; ++leaf) part[leaf] = leaf_entropy<V>(values + leaf * size, size, V::set1(log_sum));
  return join_pairwise(part, leaves);
}

// Which of the tokens [id, id + lanes) are kept, as bits. Called with ascending ids; `at` begins as first_id(words, count, id) of the first.
template <class V>
inline std::uint32_t kept_lanes(const KeptRow& row, std::int64_t id, int lanes, std::int64_t& at) {
  std::uint32_t bits = 0;
  if (row.bitmap) {
    for (int l = 0; l < lanes; ++l) bits |= static_cast<std::uint32_t>(keeps<V>(row, id + l)) << l;
    return bits;
  }
  for (; at < row.count && row.words[at] < id + lanes; ++at) bits |= 1u << (row.words[at] - id);
  return bits;
}

// Ranks that share a vocabulary exchange a row's kept logits in `width` places for each leaf of `size` tokens. Calls f(i, place) for each kept token
// i of the leaves [begin, end); leaf `begin` has the first places.
template <class V, class F>
inline void each_leaf_place(const KeptRow& row, const std::int32_t* ids, std::int64_t size, std::int64_t width, std::int64_t begin, std::int64_t end,
                            const F& f) {
  std::int64_t leaf = begin - 1, place = 0;
  for (std::int64_t i = first_id<V>(ids, row.count, begin * size); i < row.count && ids[i] < end * size; ++i, ++place) {
    if (const std::int64_t own = ids[i] / size; own != leaf) leaf = own, place = (leaf - begin) * width;
    f(i, place);
  }
}

}  // namespace lockstep
