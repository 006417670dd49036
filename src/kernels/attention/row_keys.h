// The keys that a row attends to, and iteration over them in blocks of 64. Templates over V, for attention.inl only.
#pragma once
#include "kernels/cache/entries.h"

namespace lockstep {

// The keys of one row: positions first..count (dense) or the selection's.
struct RowKeys {
  const std::int32_t* positions;  // null: dense
  std::int64_t count, sequence;
  std::int64_t first = 0;  // above 0 where a window, or Rows::first_key, leaves earlier positions out
};
template <class V>
inline RowKeys keys_of_row(const Rows& rows, const View& selection, const View& count, std::int64_t window, std::int64_t t) {
  const std::int64_t sequence = ints(rows.sequence)[t * rows.sequence.stride];
  if (selection) return {ints(selection) + t * selection.stride, ints(count)[t * count.stride], sequence};
  const std::int64_t visible = std::int64_t{1} + ints(rows.position)[t * rows.position.stride];
  const std::int64_t of_window = window > 0 ? std::max<std::int64_t>(0, visible - window) : 0;
  return {nullptr, visible, sequence, std::max(of_window, std::min<std::int64_t>(rows.first_key, visible - 1))};
}

// Adds n to `count` neighbouring cells of a row, which no other thread writes meanwhile.
static inline void count_up(const View& cells, std::int64_t row, std::int64_t column, std::int64_t count, std::int64_t n) {
  std::int32_t* cell = ints(cells) + row * cells.stride + column;
  for (std::int64_t i = 0; i < count; ++i) cell[i] += static_cast<std::int32_t>(n);
}

// The ranks [begin, end) of a row's keys whose positions lie in [first_key, end_key).
struct RankRange {
  std::int64_t begin, end;
};
template <class V>
inline RankRange ranks_between(const RowKeys& keys, std::int64_t first_key, std::int64_t end_key) {
  if (!keys.positions) return {std::min(first_key, keys.count), std::min(end_key, keys.count)};
  RankRange r{0, keys.count};
  while (r.begin < r.end && keys.positions[r.begin] < first_key) ++r.begin;
  while (r.end > r.begin && keys.positions[r.end - 1] >= end_key) --r.end;
  return r;
}

inline constexpr std::int64_t kMostTogether = 16;  // rows x heads, where they are of more rows than one
// How many rows are computed together: the chains of few heads of one row would wait for their own latency.
static inline std::int64_t rows_together(std::int64_t heads) { return std::clamp<std::int64_t>(kMostTogether / heads, 1, 8); }

// Where the sums of rows x heads go: chain row * heads + head to `first` + row * row_step + head * width. Of more rows than one, at most kMostTogether chains.
template <class V>
class ChainOutputs {
 public:
  using Elem = typename V::Elem;
  ChainOutputs(Elem* first, std::int64_t row_step, std::int64_t width, std::int64_t heads, std::int64_t rows)
      : first_(first), width_(width), one_row_(rows == 1) {
    if (one_row_) return;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t h = 0; h < heads; ++h) of_[r * heads + h] = first + r * row_step + h * width;
  }
  Elem* of(std::int64_t c) const { return one_row_ ? first_ + c * width_ : of_[c]; }

 private:
  Elem* first_;
  std::int64_t width_;
  bool one_row_;
  Elem* of_[kMostTogether];
};

// Whether a block of n keys that serves `uses` queries (rows x heads) is worth transposing.
static inline bool transposing_pays(std::int64_t n, std::int64_t uses) { return n >= kPanelKeys && uses >= 12; }

// The columns of a cache entry that kv head `group` reads.
static inline EntryPart group_part(const AttentionShape& shape, std::int64_t group) {
  if (shape.value_in_key) return {0, shape.key, 0, 0};
  return {group * shape.key, shape.key, shape.kv_heads * shape.key + group * shape.value, shape.value};
}
template <class V>
inline std::size_t group_scratch(const AttentionShape& shape) {
  return EntryBlock<V>::scratch_size(shape.key, shape.value_in_key ? 0 : shape.value);
}

// For the rows [begin, end) and their keys at positions [first_key, end_key), in blocks of at most 64 that never cross
// a multiple of 64 ranks, ascending per row: visit(row, rows, first rank, n, panels or null, these are the row's first keys, its last).
// rows > 1: as many neighbouring rows, at most `at_once`, have the same n keys here, more behind them, and the same answer to whether these
// are their first (dense alone).
// `block` then holds the n keys; with `transposed_values` its values have panels too where its keys have.
// Dense rows of one sequence share what is read. first_key is a multiple of 64.
template <class V, bool transposed_values, class Visit>
void for_key_blocks(EntryBlock<V>& block, const Rows& rows, const View& selection, const View& count, std::int64_t window, std::int64_t heads,
                    std::int64_t begin, std::int64_t end, std::int64_t first_key, std::int64_t end_key, std::int64_t at_once, const Visit& visit) {
  using Elem = typename V::Elem;
  if (selection) {
    for (std::int64_t t = begin; t < end; ++t) {
      const RowKeys keys = keys_of_row<V>(rows, selection, count, 0, t);
      const RankRange ranks = ranks_between<V>(keys, first_key, end_key);
      for (std::int64_t at = ranks.begin; at < ranks.end;) {
        const std::int64_t n = std::min(ranks.end, (at / kKeyBlock + 1) * kKeyBlock) - at;
        block.read(keys.sequence, keys.positions + at, 0, n);
        if (transposing_pays(n, heads)) {
          block.transpose(n);
          if (transposed_values) block.transpose_values(n);
        }
        visit(t, std::int64_t{1}, at, n, block.panels, at == 0, at + n == keys.count);
        at += n;
      }
    }
    return;
  }
  const auto keys_of = [&](std::int64_t t) { return keys_of_row<V>(rows, selection, count, window, t); };
  while (begin < end) {
    const std::int64_t sequence = ints(rows.sequence)[begin * rows.sequence.stride];
    std::int64_t run = begin + 1;
    while (run < end && ints(rows.sequence)[run * rows.sequence.stride] == sequence) ++run;
    const std::int64_t longest = std::min(end_key, keys_of(run - 1).count), earliest = keys_of(begin).first / kKeyBlock * kKeyBlock;
    for (std::int64_t at = std::max(first_key, earliest); at < longest; at += kKeyBlock) {
      const std::int64_t here = std::min(kKeyBlock, longest - at);
      block.read(sequence, nullptr, at, here);
      if (transposing_pays(here, heads * (run - begin))) {
        block.transpose(here);
        block.template gather<transposed_values>(here);
        if (transposed_values) block.transpose_values(here);
      }
      std::int64_t t = begin;
      for (; t < run; ++t) {
        const RowKeys keys = keys_of(t);
        const std::int64_t visible = keys.count;
        if (visible <= at) continue;
        if (keys.first > at) break;  // and so do the windows of all rows behind it
        const std::int64_t n = std::min(here, visible - at);
        const Elem* panels = n < kPanelKeys ? nullptr : block.panels;
        const bool starts = keys.first == at;
        if (at + n < visible) {  // rows stand in ascending positions: the following ones see more
          std::int64_t together = std::min(at_once, run - t);
          while (together > 1 && (starts ? keys_of(t + together - 1).first != at : keys_of(t + together - 1).first >= at)) --together;
          visit(t, together, at, n, panels, starts, false);
          t += together - 1;
        } else {
          visit(t, std::int64_t{1}, at, n, panels, starts, true);
        }
      }
      for (; t < run; ++t) {  // rows whose window begins inside the block read its rest by themselves
        const RowKeys keys = keys_of(t);
        if (keys.first >= at + here) break;
        const std::int64_t n = std::min(at + here, keys.count) - keys.first;
        block.read(sequence, nullptr, keys.first, n);
        visit(t, std::int64_t{1}, keys.first, n, static_cast<const Elem*>(nullptr), true, keys.first + n == keys.count);
      }
    }
    begin = run;
  }
}

// f(size, h) for all heads: eight at a time, those left in tiles of at most four.
template <class F>
inline void for_chains(std::int64_t heads, const F& f) {
  std::int64_t h = 0;
  for (; h + 8 <= heads; h += 8) f(std::integral_constant<int, 8>(), h);
  for_head_tiles<4>(heads - h, [&](auto tile, std::int64_t at) { f(tile, h + at); });
}

// The largest of each head's n scores: the earliest of equals; a NaN at rank 0 stays, later ones are passed over (their
// exponential is a NaN all the same). Eight heads at a time hide the chain's latency.
template <class V>
inline void largest_scores(const typename V::Elem* s, std::int64_t step, std::int64_t heads, std::int64_t n, typename V::Elem* largest) {
  if (n >= 32 && step % 16 == 0) {  // lane by lane, then over the lanes: of zeros another one, which nothing tells apart
    for (std::int64_t h = 0; h < heads; ++h) {
      const typename V::Elem* of = s + h * step;
      V most = V::load(of);
      std::int64_t k = 16;
      for (; k + 16 <= n; k += 16) most = max(V::load(of + k), most);
      typename V::Elem lanes[16];
      most.store(lanes);
      typename V::Elem m = lanes[0];
      for (int i = 1; i < 16; ++i) m = lanes[i] > m ? lanes[i] : m;
      for (; k < n; ++k) m = of[k] > m ? of[k] : m;
      largest[h] = m;
    }
    return;
  }
  const auto group = [&](auto count, std::int64_t h) {
    constexpr int kHeads = decltype(count)::value;
    typename V::Elem m[kHeads];
    for (int j = 0; j < kHeads; ++j) m[j] = s[(h + j) * step];
    for (std::int64_t k = 1; k < n; ++k)
      for (int j = 0; j < kHeads; ++j) m[j] = s[(h + j) * step + k] > m[j] ? s[(h + j) * step + k] : m[j];
    for (int j = 0; j < kHeads; ++j) largest[h + j] = m[j];
  };
  for_chains(heads, group);
}

// Each head's n values added in ascending order from +0.
template <class V>
inline void sums_by_head(const typename V::Elem* p, std::int64_t step, std::int64_t heads, std::int64_t n, typename V::Elem* sums) {
  using Elem = typename V::Elem;
  const auto group = [&](auto count, std::int64_t h) {
    constexpr int kHeads = decltype(count)::value;
    Elem sum[kHeads];
    for (int j = 0; j < kHeads; ++j) sum[j] = element<Elem>(0.0f);
    for (std::int64_t k = 0; k < n; ++k)
      for (int j = 0; j < kHeads; ++j) sum[j] = sum[j] + p[(h + j) * step + k];
    for (int j = 0; j < kHeads; ++j) sums[h + j] = sum[j];
  };
  for_chains(heads, group);
}

}  // namespace lockstep
