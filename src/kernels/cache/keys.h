// Reads the paged cache (cache.h) in CUDA forms: the address of entries, the keys of a row, and dot16 of queries with keys in two
// ways that give the same bits: by the 16 threads of a group, or by one thread with sixteen chains.
#pragma once
#include "kernels/cache/pages.h"
#include "kernels/cuda/prelude.h"
#include "kernels/rows.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

// The first element of the entry of `position` of `sequence`, counted from the cache's beginning.
LOCKSTEP_DEVICE std::int64_t entry_of(const View& cache, const Rows& rows, std::int64_t sequence, std::int64_t position) {
  const std::int32_t page = pages_of(rows, sequence)[position / rows.page_size];
  return (std::int64_t{page} * rows.page_size + position % rows.page_size) * cache.stride;
}

// The keys of one row: positions first .. count (dense) or those of its selection, ascending.
struct RowKeys {
  const std::int32_t* positions;  // null: dense
  std::int64_t count, sequence;
  std::int64_t first = 0;  // above 0 where a window (dense; 0: none), or Rows::first_key, leaves earlier positions out
  LOCKSTEP_DEVICE RowKeys(const Rows& rows, const View& selection, const View& counts, std::int64_t t, std::int64_t window = 0) : positions(nullptr) {
    sequence = ints(rows.sequence)[t * rows.sequence.stride];
    count = std::int64_t{1} + ints(rows.position)[t * rows.position.stride];
    if (window > 0 && count > window) first = count - window;
    if (!selection) {
      const std::int64_t hidden = rows.first_key < count ? rows.first_key : count - 1;
      if (first < hidden) first = hidden;
      return;
    }
    positions = ints(selection) + t * selection.stride;
    count = ints(counts)[t * counts.stride];
  }
  LOCKSTEP_DEVICE std::int64_t position(std::int64_t rank) const { return positions ? positions[rank] : rank; }
  // The rank of a position, or -1 where the row does not attend to it.
  LOCKSTEP_DEVICE std::int64_t rank_of(std::int64_t position) const {
    if (!positions) return position >= first && position < count ? position : -1;
    std::int64_t begin = 0, end = count;
    while (begin < end) {
      const std::int64_t middle = (begin + end) / 2;
      if (positions[middle] < position) begin = middle + 1;
      else end = middle;
    }
    return begin < count && positions[begin] == position ? begin : -1;
  }
};

// One tile of a backward over keys: `keys` neighbouring positions of one sequence of the batch, which one block of threads computes. A batch has at most
// key_rows / keys + sequences tiles (key_tiles): those of sequence s begin at number (its first key row) / keys + s. Numbers between the tiles of two
// sequences have no keys, and there `sequence` is -1.
struct SequenceKeys {
  std::int64_t sequence = -1;      // index into the page table
  std::int64_t begin, end, zero;   // the sequence's rows of queries; `zero`: the row that position 0 has, or would have
  std::int64_t key, count, entry;  // the tile is positions key .. key + count; `entry`: the key row of position 0
  LOCKSTEP_DEVICE SequenceKeys(const Rows& rows, std::int64_t tile, std::int64_t keys) {
    const View& starts = rows.first ? rows.key_begin : rows.sequence_begin;
    const auto at = [](const View& v, std::int64_t i) { return std::int64_t{ints(v)[i * v.stride]}; };
    std::int64_t s = 0, last = rows.sequence_begin.rows - 2;
    while (s < last) {  // the last sequence whose tiles begin at `tile` or before
      const std::int64_t middle = (s + last + 1) / 2;
      if (at(starts, middle) / keys + middle <= tile) s = middle;
      else last = middle - 1;
    }
    begin = at(rows.sequence_begin, s), end = at(rows.sequence_begin, s + 1);
    zero = begin - (rows.first ? at(rows.first, s) : 0);
    entry = at(starts, s);
    key = (tile - entry / keys - s) * keys;
    count = end - zero - key < keys ? end - zero - key : keys;
    if (begin < end && count > 0) sequence = ints(rows.sequence)[begin * rows.sequence.stride];
  }
};
inline std::int64_t key_tiles(const Rows& rows, std::int64_t key_rows, std::int64_t keys) { return key_rows / keys + rows.sequence_begin.rows - 1; }

inline constexpr int kDots = 4;                     // heads whose dot products with a key are taken at once
inline constexpr int kLanesOfDot = kLanes / kDots;  // neighbouring threads that get one of them

// dot16(q(j, i), k(i)) over n terms for j < count <= kDots, by the 16 threads of a group, all of which call it: lane l gets that of
// j = l / kLanesOfDot (junk beyond count). The tree's additions are shared out, so that a lane shuffles five numbers and not five a dot product.
template <class Q, class K>
LOCKSTEP_DEVICE float group_dots(const Thread& t, std::int64_t n, int count, const Q& q, const K& k) {
  const int lane = t.lane();
  float sum[kDots] = {};
  for (std::int64_t i = lane; i < n; i += kLanes) {
    const float key = k(i);
    for (int j = 0; j < kDots; ++j)
      if (j < count) sum[j] = fused(q(j, i), key, sum[j]);
  }
  // Chains i and i + 8: half of the lanes goes on with two of the products, the other half with the others; then with one of two.
  const bool upper = (lane & 8) != 0, odd = (lane & 4) != 0;
  const float first = (upper ? sum[2] : sum[0]) + t.from(upper ? sum[0] : sum[2], lane ^ 8);
  const float second = (upper ? sum[3] : sum[1]) + t.from(upper ? sum[1] : sum[3], lane ^ 8);
  float own = (odd ? second : first) + t.from(odd ? first : second, lane ^ 4);
  own = own + t.from(own, lane ^ 2);
  return own + t.from(own, lane ^ 1);
}

// dot16 of a(i) and b(i) over n terms by one thread.
template <class A, class B>
LOCKSTEP_DEVICE float thread_dot16(std::int64_t n, const A& a, const B& b) {
  float chain[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) chain[l] = fused(a(i + l), b(i + l), chain[l]);
  for (int l = 0; l < kLanes; ++l)
    if (i + l < n) chain[l] = fused(a(i + l), b(i + l), chain[l]);
  for (int half = 8; half >= 1; half /= 2)
    for (int l = 0; l < half; ++l) chain[l] = chain[l] + chain[l + half];
  return chain[0];
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
