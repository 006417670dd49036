// Attention of rows that are each the only one of their sequence, as in decoding; dense, grouped queries. Such a row computes little with
// what it reads, so all its heads are computed together, and the entries of a block of keys are fetched, in the order in which they lie in
// the cache, while the block before is computed: of all orders that one is read fastest. The additions are those of attention.h. Templates
// over V, for attention.inl only.
#pragma once
#include "kernels/attention/row_keys.h"
#include "kernels/attention/sinks.h"
#include "numerics/isa/spin.h"

namespace lockstep {

// Register tiles of scores: heads x keys. They change speed only.
template <class V>
inline constexpr int kScoredHeads = V::kRows >= 12 ? 4 : 3;
template <class V>
inline constexpr int kScoredKeys = V::kRows >= 12 ? 4 : 2;

// lanes[h * kTreesAtOnce + k]: those of the dot16 of `Heads` queries, `width` apart, with the columns from `offset` on of `Keys` entries.
template <class V, int Heads, int Keys, class Stored>
[[gnu::always_inline]] inline void dot_lanes(const typename V::Elem* q, const Stored* const* entry, std::int64_t offset, std::int64_t width,
                                             typename V::Elem (*lanes)[16]) {
  V sum[Heads][Keys];
  const Stored* from[Keys];
  for (int k = 0; k < Keys; ++k) from[k] = entry[k] + offset;
  for (int h = 0; h < Heads; ++h)
    for (int k = 0; k < Keys; ++k) sum[h][k] = V::zero();
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    V key[Keys];
    for (int k = 0; k < Keys; ++k) key[k] = V::load(from[k] + i);
    for (int h = 0; h < Heads; ++h) {
      const V query = V::load(q + h * width + i);
      for (int k = 0; k < Keys; ++k) sum[h][k] = fma(query, key[k], sum[h][k]);
    }
  }
  if (i < width) {  // lanes beyond the end keep their chain
    const int rest = static_cast<int>(width - i);
    const V mask = lane_mask<V>(rest);
    for (int k = 0; k < Keys; ++k) {
      const V key = V::load_partial(from[k] + i, rest);
      for (int h = 0; h < Heads; ++h) sum[h][k] = select_gt(mask, V::zero(), fma(V::load_partial(q + h * width + i, rest), key, sum[h][k]), sum[h][k]);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int k = 0; k < Keys; ++k) sum[h][k].store(lanes[h * kTreesAtOnce + k]);
}

// A block of at most 64 keys of a row, and where their entries lie.
template <class V, class Stored>
struct RowBlock {
  std::int64_t n = 0;
  const Stored* entry[kKeyBlock];
  std::int64_t step() const { return score_step(n); }
};

// Asks for the lines of a block's entries, in their order, some at a time.
template <class V, class Stored>
class LinesAhead {
 public:
  LinesAhead() = default;
  LinesAhead(const RowBlock<V, Stored>& block, std::int64_t width)
      : entry_(block.entry), last_(block.entry + block.n), bytes_(width * static_cast<std::int64_t>(sizeof(Stored))) {}
  std::int64_t lines() const { return (last_ - entry_) * ((bytes_ + 63) / 64); }
  void take(std::int64_t n) {
    for (; n > 0; --n) {
      if (at_ >= end_) {
        if (entry_ == last_) return;
        at_ = reinterpret_cast<const char*>(*entry_++);
        end_ = at_ + bytes_;
      }
      __builtin_prefetch(at_);
      at_ += 64;
    }
  }

 private:
  const Stored *const *entry_ = nullptr, *const *last_ = nullptr;
  const char *at_ = nullptr, *end_ = nullptr;
  std::int64_t bytes_ = 0;
};

// One row of a forward: its keys in blocks that end at multiples of 64 positions.
template <class V, class Stored>
class SingleRow {
 public:
  using Elem = typename V::Elem;
  using Block = RowBlock<V, Stored>;
  using Ahead = LinesAhead<V, Stored>;
  SingleRow(const AttentionForward& op, const Stored* cache, std::int64_t row)
      : op_(op), shape_(op.shape), cache_(cache), row_(row), keys_(keys_of_row<V>(op.rows, {}, {}, op.shape.window, row)) {}

  std::int64_t keys() const { return keys_.count - keys_.first; }
  std::int64_t blocks() const { return (keys_.count + kKeyBlock - 1) / kKeyBlock - keys_.first / kKeyBlock; }
  void find(std::int64_t number, Block& block) const {
    const std::int64_t whole = (keys_.first / kKeyBlock + number) * kKeyBlock, at = std::max(whole, keys_.first);
    block.n = std::min(keys_.count, whole + kKeyBlock) - at;
    const std::int32_t* const pages = pages_of(op_.rows, keys_.sequence);
    const auto size = static_cast<std::uint32_t>(op_.rows.page_size);
    for (std::int64_t k = 0; k < block.n; ++k) block.entry[k] = entry_at(cache_, op_.cache.stride, pages, size, at + k);
  }

  // s[h * block.step() + k] = the score of head h with key k of the block; largest[h]: the largest of them. Meanwhile half of `ahead` is asked for.
  void score(const Block& block, Elem* s, Elem* largest, Ahead& ahead) const {
    const V scale = V::set1(element<Elem>(shape_.scale));
    const std::int64_t step = block.step(), n = block.n;
    constexpr std::int64_t kHeads = kScoredHeads<V>, kKeys = kScoredKeys<V>;
    const std::int64_t tiles = shape_.kv_heads * ((shape_.group() + kHeads - 1) / kHeads) * ((n + kKeys - 1) / kKeys);
    const std::int64_t lines = (ahead.lines() / 2 + tiles - 1) / tiles;
    for_head_tiles<kScoredHeads<V>>(shape_.group(), [&](auto count, std::int64_t first) {
      constexpr int kTile = decltype(count)::value;
      alignas(64) Elem lanes[kTile * kTreesAtOnce][16];
      std::int64_t k = 0;
      for (; k + kTreesAtOnce <= n; k += kTreesAtOnce)
        for_kv_heads(first, s, step, [&](std::int64_t kv_head, const Elem* q, Elem* out) {
          for (int j = 0; j < kTreesAtOnce; j += kKeys) {
            ahead.take(lines);
            dot_lanes<V, kTile, kKeys>(q, block.entry + k + j, kv_head * shape_.key, shape_.key, lanes + j);
          }
          for (int h = 0; h < kTile; ++h) reduce_trees<V>(lanes + h * kTreesAtOnce, out + h * step + k);
        });
      for (; k < n; ++k)
        for_kv_heads(first, s, step, [&](std::int64_t kv_head, const Elem* q, Elem* out) {
          dot_lanes<V, kTile, 1>(q, block.entry + k, kv_head * shape_.key, shape_.key, lanes);
          for (int h = 0; h < kTile; ++h) out[h * step + k] = reduce_tree(V::load(lanes[h * kTreesAtOnce]));
        });
    });
    for (std::int64_t i = 0; i < shape_.heads * step; i += 16) (V::load(s + i) * scale).store(s + i);
    largest_scores<V>(s, step, shape_.heads, n, largest);
  }

  // Makes the scores s of a block their exponentials less `largest`; sums[h]: their sum. finish(sum, head, column, lanes) gets the sums of values.
  // Meanwhile the rest of `ahead` is asked for.
  template <class Finish>
  void sum(const Block& block, Elem* s, const Elem* largest, Elem* sums, Ahead& ahead, const Finish& finish) const {
    const std::int64_t heads = shape_.heads, group = shape_.group(), step = block.step();
    subtract_by_head<V>(s, heads, step, block.n, largest);
    exp_all<V>(s, heads * step);
    sums_by_head<V>(s, step, heads, block.n, sums);
    for (std::int64_t kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
      const Stored* value[kKeyBlock];
      for (std::int64_t k = 0; k < block.n; ++k) value[k] = block.entry[k] + shape_.kv_heads * shape_.key + kv_head * shape_.value;
      weighted_sums<V>(
          s + kv_head * group * step, step, group, value, block.n, shape_.value, [](std::int64_t, std::int64_t, int) { return V::zero(); },
          [&](const V& x, std::int64_t h, std::int64_t column, int lanes) { finish(x, kv_head * group + h, column, lanes); }, ahead);
    }
  }

 private:
  // f(kv head, query, scores) of each kv head's head `first`.
  template <class F>
  void for_kv_heads(std::int64_t first, Elem* s, std::int64_t step, const F& f) const {
    const Elem* const q = elements<V>(op_.q) + row_ * op_.q.stride;
    for (std::int64_t kv_head = 0, h = first; kv_head < shape_.kv_heads; ++kv_head, h += shape_.group()) f(kv_head, q + h * shape_.key, s + h * step);
  }

  const AttentionForward& op_;
  const AttentionShape& shape_;
  const Stored* cache_;
  std::int64_t row_;
  RowKeys keys_;
};

// Whether a forward's rows, where they are the only ones of their sequences, are computed here: dense, values apart, and so few heads a key
// that reading it takes longer than computing with it.
static inline bool single_rows_pay(const AttentionForward& op) {
  return !op.selection && !op.shape.value_in_key && !transposing_pays(kKeyBlock, op.shape.group());
}

// The forward of such rows. Work items are blocks of keys, of all rows in their order, so that few rows keep all threads busy. An item makes
// its scores, waits for the running maxima of the block before it, which an item that was begun before makes (base/thread_pool.h), and makes
// the block's sums. When a number of items are done, their sums are joined, an item a row and kv head.
template <class V, class Stored>
class SingleRows {
 public:
  using Elem = typename V::Elem;
  SingleRows(const AttentionForward& op, const Stored* cache, ThreadPool& pool)
      : op_(op),
        cache_(cache),
        pool_(pool),
        heads_(op.shape.heads),
        padded_(padded16(heads_)),
        value_(padded16(op.shape.value)),
        begins_(thread_scratch<std::int64_t, 9>(static_cast<std::size_t>(op.q.rows + 1))) {
    begins_[0] = 0;
    for (std::int64_t t = 0; t < op.q.rows; ++t) begins_[t + 1] = begins_[t] + row(t).blocks();
    most_ = std::min(kItemsAThread * pool.threads(), begins_[op.q.rows]);
    known_ = thread_scratch<std::int32_t, 9>(static_cast<std::size_t>(most_));
    slots_ = thread_scratch<Elem, 9>(static_cast<std::size_t>(most_ * slot_size() + op.q.rows * 2 * padded_));
  }
  void run() {
    const std::int64_t kv_heads = op_.shape.kv_heads;
    for (std::int64_t begin = 0, all = begins_[op_.q.rows]; begin < all; begin += most_) {
      const std::int64_t end = std::min(all, begin + most_), first = row_of(begin), last = row_of(end - 1);
      std::fill_n(known_, end - begin, 0);
      pool_.run(end - begin, [&](std::int64_t i) { compute(begin, begin + i); });
      pool_.run((last + 1 - first) * kv_heads, [&](std::int64_t i) { join(first + i / kv_heads, i % kv_heads, begin, end); });
      for (std::int64_t t = first; t <= last; ++t) {
        const bool done = begins_[t + 1] <= end;
        if (!done) std::copy_n(slot(end - 1 - begin).largest, heads_, largest_of(t));
        if (done && op_.keys_read) count_up(op_.keys_read, t, 0, heads_, row(t).keys());
      }
    }
  }

 private:
  static constexpr std::int64_t kItemsAThread = 16;
  // Of a block: its scores; its maxima, in whose place comes what the sums before it are multiplied with; the running maxima; its sums; its sums of values.
  struct Slot {
    Elem *scores, *alpha, *largest, *sums, *values;
  };
  std::int64_t slot_size() const { return heads_ * kKeyBlock + 16 + 3 * padded_ + heads_ * value_; }
  Slot slot(std::int64_t i) const {
    Elem *const scores = slots_ + i * slot_size(), *const alpha = scores + heads_ * kKeyBlock + 16;
    return {scores, alpha, alpha + padded_, alpha + 2 * padded_, alpha + 3 * padded_};
  }
  // Of a row: the running maxima of the blocks that were joined, and the denominators.
  Elem* largest_of(std::int64_t t) const { return slots_ + most_ * slot_size() + t * 2 * padded_; }
  Elem* denominator_of(std::int64_t t) const { return largest_of(t) + padded_; }
  SingleRow<V, Stored> row(std::int64_t t) const { return {op_, cache_, t}; }
  std::int64_t row_of(std::int64_t item) const { return std::upper_bound(begins_, begins_ + op_.q.rows + 1, item) - begins_ - 1; }

  // Nothing here throws: others wait for it.
  void compute(std::int64_t begin, std::int64_t item) const {
    const std::int64_t t = row_of(item), number = item - begins_[t], later = item + pool_.threads();
    const SingleRow<V, Stored> own = row(t);
    RowBlock<V, Stored> block, next;
    own.find(number, block);
    LinesAhead<V, Stored> ahead;
    if (later < begins_[op_.q.rows]) {  // likely this thread's next item
      const std::int64_t u = row_of(later);
      row(u).find(later - begins_[u], next);
      ahead = {next, op_.shape.entry()};
    }
    const Slot to = slot(item - begin);
    own.score(block, to.scores, to.alpha, ahead);
    const Elem* before = nullptr;
    if (number > 0) {
      if (item > begin) wait_for(item - 1 - begin);
      before = item > begin ? slot(item - 1 - begin).largest : largest_of(t);
    }
    for (std::int64_t h = 0; h < heads_; ++h) {
      const Elem fresh = to.alpha[h];
      to.largest[h] = !before || fresh > before[h] ? fresh : before[h];
      if (before) to.alpha[h] = before[h] - to.largest[h];
    }
    std::atomic_ref(known_[item - begin]).store(1, std::memory_order_release);
    if (before) exp_all<V>(to.alpha, heads_);
    own.sum(block, to.scores, to.largest, to.sums, ahead,
            [&](const V& sum, std::int64_t h, std::int64_t column, int) { sum.store(to.values + h * value_ + column); });
  }
  void wait_for(std::int64_t i) const {
    for (int spin = 0; std::atomic_ref(known_[i]).load(std::memory_order_acquire) == 0;) {
      if (spin < 10000) ++spin, spin_pause();
      else std::this_thread::yield();
    }
  }

  // The blocks of row t among the items [begin, end), in order, for the heads of a kv head.
  void join(std::int64_t t, std::int64_t kv_head, std::int64_t begin, std::int64_t end) const {
    const std::int64_t from = std::max(begin, begins_[t]), to = std::min(end, begins_[t + 1]), group = op_.shape.group();
    const std::int64_t h0 = kv_head * group, width = op_.shape.value;
    Elem *const denominator = denominator_of(t), *const o = elements<V>(op_.o) + t * op_.o.stride;
    for (std::int64_t item = from; item < to; ++item) {
      const Slot block = slot(item - begin);
      const bool first = item == begins_[t];
      for (std::int64_t h = h0; h < h0 + group; ++h) {
        denominator[h] = first ? block.sums[h] : fused(denominator[h], block.alpha[h], block.sums[h]);
        const V alpha = V::set1(block.alpha[h]);
        for (std::int64_t c = 0; c < width; c += 16) {
          const int lanes = lanes_left(width, c);
          Elem* const out = o + h * width + c;
          const V sum = V::load(block.values + h * value_ + c);
          store_lanes(first ? sum : fma(load_lanes<V>(out, lanes), alpha, sum), out, lanes);
        }
      }
    }
    if (to == begins_[t + 1]) finish(t, h0, slot(to - 1 - begin).largest + h0, denominator + h0);
  }
  // Heads h0 .. of a kv head, whose blocks are all joined.
  void finish(std::int64_t t, std::int64_t h0, Elem* largest, Elem* denominator) const {
    const std::int64_t group = op_.shape.group(), width = op_.shape.value;
    const SinkState<V> sinks(op_.sinks, h0, group, thread_scratch<Elem>(static_cast<std::size_t>(SinkState<V>::scratch_size(group))));
    if (sinks.there) sinks.join(group, largest, denominator);
    for (std::int64_t h = 0; h < group; ++h)
      for (std::int64_t c = 0; c < width; c += 16) {
        const int lanes = lanes_left(width, c);
        Elem* const out = elements<V>(op_.o) + t * op_.o.stride + (h0 + h) * width + c;
        V x = load_lanes<V>(out, lanes);
        if (sinks.there) x = x * V::set1(sinks.alpha[h]);
        store_lanes(x / V::set1(denominator[h]), out, lanes);
      }
    Elem* const log_sum = elements<V>(op_.log_sum) + t * op_.log_sum.stride + h0;
    for (std::int64_t h = 0; h < group; h += 16) {
      const int lanes = lanes_left(group, h);
      (V::load_partial(largest + h, lanes) + log(V::load_partial(denominator + h, lanes))).store_partial(log_sum + h, lanes);
    }
  }

  const AttentionForward& op_;
  const Stored* cache_;
  ThreadPool& pool_;
  std::int64_t heads_, padded_, value_, most_ = 0;
  std::int64_t* begins_;           // begins_[t]: the first item of row t
  std::int32_t* known_ = nullptr;  // whether the running maxima of an item are known
  Elem* slots_ = nullptr;
};

}  // namespace lockstep
