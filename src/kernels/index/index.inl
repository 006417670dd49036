// Implementation of index.h: scoring and selection here, the loss in loss.h.
#include "kernels/cache/entries.h"
#include "kernels/index/loss.h"
#include "kernels/index/order.h"

namespace lockstep {

// Scores of one row against the sixteen keys of a panel.
template <class V>
inline V index_scores(const typename V::Elem* q, const typename V::Elem* weight, std::int64_t heads, std::int64_t size, const typename V::Elem* panel,
                      const V& key_scale) {
  constexpr int kTile = kPanelTile<V>;
  V score = V::zero();
  const auto group = [&](auto count, std::int64_t h) {
    constexpr int kHeads = decltype(count)::value;
    const typename V::Elem* of_head[kHeads];
    for (int j = 0; j < kHeads; ++j) of_head[j] = q + (h + j) * size;
    V dots[kHeads][1];
    panel_dots<V, kHeads, 1>(of_head, panel, 0, size, dots);
    // 0 > x ? 0 : x lets a NaN through.
    for (int j = 0; j < kHeads; ++j) score = fma(V::set1(weight[h + j]), max(V::zero(), dots[j][0] * key_scale), score);
  };
  std::int64_t h = 0;
  for (; h + kTile <= heads; h += kTile) group(std::integral_constant<int, kTile>(), h);
  for (; h < heads; ++h) group(std::integral_constant<int, 1>(), h);
  return score;
}

// Greater is chosen first: score descending (-0 equals +0, a NaN below all), then position ascending.
template <class V>
inline std::uint64_t selection_key(float score, std::int64_t position) {
  return static_cast<std::uint64_t>(selection_order(score)) << 32 | (0xffffffffu - static_cast<std::uint32_t>(position));
}

template <class V>
struct GreaterFirst {
  bool operator()(std::uint64_t a, std::uint64_t b) const { return a > b; }
};

// Writes the positions of the top_k of `visible` > top_k scores, ascending; true when a score is a NaN.
// keys: scratch of `visible` numbers.
template <class V>
bool select_top(const typename V::Elem* scores, std::int64_t visible, std::int64_t top_k, std::uint64_t* keys, std::int32_t* selection) {
  constexpr std::int64_t kFew = 16;
  bool nan = false;
  if (top_k <= kFew) {  // the best so far, in descending order
    std::uint64_t best[kFew];
    std::int64_t held = 0;
    for (std::int64_t p = 0; p < visible; ++p) {
      const float score = value_of(scores[p]);
      nan |= score != score;
      const std::uint64_t key = selection_key<V>(score, p);
      if (held == top_k && key < best[held - 1]) continue;
      std::int64_t at = held < top_k ? held++ : held - 1;
      for (; at > 0 && best[at - 1] < key; --at) best[at] = best[at - 1];
      best[at] = key;
    }
    for (std::int64_t i = 0; i < top_k; ++i) {  // insertion by position
      const std::int32_t position = static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(best[i]));
      std::int64_t at = i;
      for (; at > 0 && selection[at - 1] > position; --at) selection[at] = selection[at - 1];
      selection[at] = position;
    }
    return nan;
  }
  for (std::int64_t p = 0; p < visible; ++p) {
    const float score = value_of(scores[p]);
    nan |= score != score;
    keys[p] = selection_key<V>(score, p);
  }
  std::nth_element(keys, keys + (top_k - 1), keys + visible, GreaterFirst<V>());
  const std::uint64_t least = keys[top_k - 1];
  for (std::int64_t p = 0; p < visible; ++p)
    if (selection_key<V>(value_of(scores[p]), p) >= least) *selection++ = static_cast<std::int32_t>(p);
  return nan;
}

template <class V>
void index_select(const IndexSelect& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const std::int64_t rows = op.q.rows, heads = op.heads, size = op.size;
  const std::int64_t per_item = rows_per_item(rows, pool.threads(), 32);
  constexpr std::int64_t kScoresAtOnce = 1 << 18;  // rows of long sequences are scored fewer at a time
  const Rows& r = op.rows;
  const auto visible_of = [&](std::int64_t t) { return std::int64_t{1} + ints(r.position)[t * r.position.stride]; };
  const auto first_of = [&](std::int64_t t) { return std::min<std::int64_t>(r.first_key, visible_of(t) - 1); };
  pool.run((rows + per_item - 1) / per_item, [&](std::int64_t item) {
    const V weight_scale = V::set1(1.0f / __builtin_sqrtf(static_cast<float>(heads)));
    const V key_scale = V::set1(1.0f / __builtin_sqrtf(static_cast<float>(size)));
    const std::int64_t end = std::min(rows, (item + 1) * per_item);
    for (std::int64_t t = item * per_item; t < end;) {
      const std::int64_t first = first_of(t), keys_seen = visible_of(t) - first, sequence = ints(r.sequence)[t * r.sequence.stride];
      if (keys_seen <= op.top_k) {
        std::int32_t* selection = ints(op.selection) + t * op.selection.stride;
        for (std::int64_t i = 0; i < op.top_k; ++i) selection[i] = i < keys_seen ? static_cast<std::int32_t>(first + i) : -1;
        ints(op.count)[t * op.count.stride] = static_cast<std::int32_t>(keys_seen);
        ++t;
        continue;
      }
      // Rows of one sequence share the transposed keys.
      std::int64_t run = t + 1;
      while (run < end && ints(r.sequence)[run * r.sequence.stride] == sequence && (run - t + 1) * padded16(visible_of(run)) <= kScoresAtOnce) ++run;
      const std::int64_t longest = visible_of(run - 1), step = padded16(longest), padded_heads = padded16(heads);
      Elem* scratch = thread_scratch<Elem>(EntryBlock<V>::scratch_size(size) + static_cast<std::size_t>((run - t) * (step + padded_heads)));
      EntryBlock<V> block(op.cache, r, size, scratch);
      Elem* weights = scratch + EntryBlock<V>::scratch_size(size);
      Elem* scores = weights + (run - t) * padded_heads;
      for (std::int64_t i = t; i < run; ++i)
        for (std::int64_t h = 0; h < heads; h += 16)
          (V::load_partial(elements<V>(op.w) + i * op.w.stride + h, lanes_left(heads, h)) * weight_scale).store(weights + (i - t) * padded_heads + h);
      for (std::int64_t at = 0; at < longest; at += kKeyBlock) {
        const std::int64_t n = std::min(kKeyBlock, longest - at);
        block.read(sequence, nullptr, at, n);
        block.transpose(n);
        for (std::int64_t i = t; i < run; ++i)
          for (std::int64_t k = 0; k < std::min(n, visible_of(i) - at); k += 16)
            index_scores<V>(elements<V>(op.q) + i * op.q.stride, weights + (i - t) * padded_heads, heads, size, block.panels + k * size, key_scale)
                .store(scores + (i - t) * step + at + k);
      }
      auto* keys = thread_scratch<std::uint64_t>(op.top_k > 16 ? static_cast<std::size_t>(longest) : 0);
      for (std::int64_t i = t; i < run; ++i) {
        const std::int64_t hidden = first_of(i);
        std::int32_t* selection = ints(op.selection) + i * op.selection.stride;
        const bool nan = select_top<V>(scores + (i - t) * step + hidden, visible_of(i) - hidden, op.top_k, keys, selection);
        for (std::int64_t j = 0; hidden > 0 && j < op.top_k; ++j) selection[j] += static_cast<std::int32_t>(hidden);
        ints(op.count)[i * op.count.stride] = static_cast<std::int32_t>(op.top_k);
        if (nan && op.flags) ints(op.flags)[i * op.flags.stride] |= 1;
      }
      t = run;
    }
  });
}

LOCKSTEP_INSTANTIATE(index_select, IndexSelect)
LOCKSTEP_INSTANTIATE(index_loss, IndexLoss)

}  // namespace lockstep
