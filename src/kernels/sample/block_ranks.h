// Block-wide selection for one row in the CUDA forms of sample/ and top/: tokens that a mask allows, and tokens by rank (z descending, index
// ascending). Integers and a total order only, so the order of threads does not matter. Every thread of the block calls these.
#pragma once
#include "kernels/cuda/block_tools.h"
#include "kernels/cuda/prelude.h"
#include "kernels/sample/noise.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

inline constexpr int kDigits = 16;                  // of a key, four bits at a time
inline constexpr std::int64_t kCountedRanks = 512;  // up to here a rank is found by counting the keys before it
// Block memory, a count for each digit and thread.
inline constexpr std::size_t kRankMemory = kDigits * kBlockThreads * sizeof(std::int32_t);

// allowed_tokens of allowed.h: ids of the set bits below n, ascending; returns how many.
LOCKSTEP_DEVICE std::int64_t block_allowed(const Thread& t, const std::int32_t* words, std::int64_t n, std::int32_t* ids, std::int32_t* shared) {
  const ThreadPart part(t, n);
  const auto allowed = [words](std::int64_t id) { return (static_cast<std::uint32_t>(words[id / 32]) >> (id % 32) & 1u) != 0; };
  std::int32_t own = 0, total = 0;
  for (std::int64_t id = part.begin; id < part.end; ++id) own += allowed(id);
  std::int32_t at = sum_before(t, own, shared, total);
  for (std::int64_t id = part.begin; id < part.end; ++id)
    if (allowed(id)) ids[at++] = static_cast<std::int32_t>(id);
  t.sync();
  return total;
}

// The `ranks` indices of the least key(i) of n, ties to the lower index, ascending in index: to order[0 .. ranks).
template <class Key>
LOCKSTEP_DEVICE void take_least(const Thread& t, std::int64_t n, std::int64_t ranks, const Key& key, std::int32_t* order, std::int32_t* shared) {
  // The key of the last rank, digit by digit from the top: `left` is its rank among the keys that begin as it does.
  std::uint32_t last = 0;
  std::int64_t left = ranks;
  for (int shift = 28; shift >= 0; shift -= 4) {
    for (int d = 0; d < kDigits; ++d) shared[d * t.count() + t.index()] = 0;
    for (std::int64_t i = t.index(); i < n; i += t.count()) {
      const std::uint32_t own = key(i);
      if (shift == 28 || own >> (shift + 4) == last >> (shift + 4)) ++shared[(own >> shift & 15u) * t.count() + t.index()];
    }
    t.sync();
    if (t.index() < kDigits)
      for (int other = 1; other < t.count(); ++other) shared[t.index() * t.count()] += shared[t.index() * t.count() + other];
    t.sync();
    std::uint32_t digit = 0;
    for (; shared[digit * t.count()] < left; ++digit) left -= shared[digit * t.count()];
    last |= digit << shift;
    t.sync();
  }
  // Of keys equal to the last, the first `left` are taken.
  const ThreadPart part(t, n);
  std::int32_t below = 0, equal = 0, total = 0;
  for (std::int64_t i = part.begin; i < part.end; ++i) below += key(i) < last, equal += key(i) == last;
  const std::int64_t equal_before = sum_before(t, equal, shared, total);
  std::int64_t room = left > equal_before ? left - equal_before : 0;
  const auto taken = below + (equal < room ? equal : static_cast<std::int32_t>(room));
  std::int32_t at = sum_before(t, taken, shared, total);
  for (std::int64_t i = part.begin; i < part.end; ++i) {
    if (key(i) > last || (key(i) == last && room-- <= 0)) continue;
    order[at++] = static_cast<std::int32_t>(i);
  }
  t.sync();
}

// One pass of a sort by digits: `from` to `to`, stable.
template <class Key>
LOCKSTEP_DEVICE void sort_by_digit(const Thread& t, std::int64_t count, int shift, const Key& key, const std::int32_t* from, std::int32_t* to,
                                   std::int32_t* shared) {
  const ThreadPart part(t, count);
  const auto digit = [&](std::int64_t i) { return key(from[i]) >> shift & 15u; };
  for (int d = 0; d < kDigits; ++d) shared[d * t.count() + t.index()] = 0;
  for (std::int64_t i = part.begin; i < part.end; ++i) ++shared[digit(i) * t.count() + t.index()];
  t.sync();
  // Counts become places: digits ascending, threads ascending. A thread takes 16 neighbours of the table.
  std::int32_t own[kDigits], sum = 0, total = 0;
  for (int d = 0; d < kDigits; ++d) sum += own[d] = shared[t.index() * kDigits + d];
  t.sync();
  std::int32_t place = sum_before(t, sum, shared, total);
  for (int d = 0; d < kDigits; ++d) shared[t.index() * kDigits + d] = place, place += own[d];
  t.sync();
  for (std::int64_t i = part.begin; i < part.end; ++i) to[shared[digit(i) * t.count() + t.index()]++] = from[i];
  t.sync();
}

// The first `ranks` of n indices by rank; returns where they stand, `order` or `other`, each with room for `ranks`.
template <class Key>
LOCKSTEP_DEVICE std::int32_t* rank_indices(const Thread& t, std::int64_t n, std::int64_t ranks, const Key& key, std::int32_t* order, std::int32_t* other,
                                           std::int32_t* shared) {
  if (ranks < n) {
    take_least(t, n, ranks, key, order, shared);
  } else {
    for (std::int64_t i = t.index(); i < n; i += t.count()) order[i] = static_cast<std::int32_t>(i);
    t.sync();
  }
  if (ranks > kCountedRanks) {
    for (int shift = 0; shift < 32; shift += 8) {
      sort_by_digit(t, ranks, shift, key, order, other, shared);
      sort_by_digit(t, ranks, shift + 4, key, other, order, shared);
    }
    return order;
  }
  for (std::int64_t i = t.index(); i < ranks; i += t.count()) {
    const std::uint32_t own = key(order[i]);
    std::int64_t rank = 0;
    for (std::int64_t j = 0; j < ranks; ++j) {
      const std::uint32_t there = key(order[j]);
      rank += there < own || (there == own && j < i);  // indices ascend
    }
    other[rank] = order[i];
  }
  t.sync();
  return other;
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
