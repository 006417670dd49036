// The best keys of a row while its keys are scored, block by block: what can be among the top_k so far, and a threshold below which nothing is looked at.
// Memory is that of 2 * top_k keys, whatever the context. What is kept is a set by a total order (index.h), so blocks, tiles and threads change nothing.
// Included by index.inl, after the instruction set's pragma; templates over V.
#pragma once
#include "kernels/index/order.h"
#include "kernels/vector_tools.h"

namespace lockstep {

// A key: its place in the order of scores above its position.
static inline std::uint64_t candidate(float score, std::int64_t position) {
  return static_cast<std::uint64_t>(selection_order(score)) << 32 | static_cast<std::uint32_t>(position);
}
static inline std::uint32_t order_of(std::uint64_t candidate) { return static_cast<std::uint32_t>(candidate >> 32); }

inline constexpr std::int64_t kFewCandidates = 512;

// The order of the k-th best of `count` candidates, and in `equal` how many of its equals are among the k. By counting eleven bits at a time: as many
// passes whatever the scores. 1 <= k <= count.
static inline std::uint32_t order_of_best(const std::uint64_t* held, std::int64_t count, std::int64_t k, std::int64_t* equal) {
  constexpr int kBits = 11, kBuckets = 1 << kBits;
  std::uint32_t counts[2][kBuckets];  // two, since neighbours often fall into one bucket, which the processor would wait for
  std::uint32_t order = 0;
  int known = 0;  // bits of `order` that are found, from the top
  while (known < 32) {
    const int bits = 32 - known < kBits ? 32 - known : kBits, shift = 32 - known - bits;
    const std::uint32_t mask = (1u << bits) - 1;
    __builtin_memset(counts, 0, sizeof counts);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t o = order_of(held[i]);
      if (known == 0 || (o ^ order) >> (32 - known) == 0) ++counts[i & 1][o >> shift & mask];
    }
    std::int64_t bucket = mask;
    for (std::int64_t here; (here = counts[0][bucket] + counts[1][bucket]) < k; --bucket) k -= here;
    order |= static_cast<std::uint32_t>(bucket) << shift;
    known += bits;
  }
  *equal = k;
  return order;
}

// The same where they are few, for which counting costs more than it saves.
static inline std::uint32_t order_of_best_of_few(const std::uint64_t* held, std::int64_t count, std::int64_t k, std::int64_t* equal) {
  std::uint32_t orders[kFewCandidates];
  for (std::int64_t i = 0; i < count; ++i) orders[i] = order_of(held[i]);
  std::nth_element(orders, orders + (k - 1), orders + count, [](std::uint32_t a, std::uint32_t b) { return a > b; });
  *equal = k;
  for (std::int64_t i = 0; i < k; ++i) *equal -= orders[i] > orders[k - 1] ? 1 : 0;
  return orders[k - 1];
}

// Leaves the `k` best of `count` candidates, which stand in ascending positions before and after; of equal scores those before others. Their order's least.
static inline std::uint32_t keep_best(std::uint64_t* held, std::int64_t count, std::int64_t k) {
  std::int64_t equal = 0, kept = 0;
  const std::uint32_t least = count <= kFewCandidates ? order_of_best_of_few(held, count, k, &equal) : order_of_best(held, count, k, &equal);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t order = order_of(held[i]);
    const bool stays = order > least || (order == least && equal > 0);
    equal -= order == least ? 1 : 0;
    held[kept] = held[i];
    kept += stays ? 1 : 0;
  }
  return least;
}

template <class V>
class Candidates {
 public:
  using Elem = typename V::Elem;
  static constexpr std::int64_t kBlock = 64;        // keys that are added at once, at most
  static constexpr std::int64_t kFewSelected = 16;  // so many are held in order, the best first
  static std::int64_t capacity(std::int64_t top_k) { return 2 * top_k + kBlock; }

  // `held`: capacity(top_k) numbers that live as long.
  void begin(std::uint64_t* held, std::int64_t top_k) { held_ = held, top_k_ = top_k, count_ = 0, nan_ = bounded_ = false; }
  // The next n <= kBlock keys, whose positions ascend from `position` and lie behind all before.
  void add(const Elem* scores, std::int64_t n, std::int64_t position) {
    if (top_k_ > kFewSelected && count_ + kBlock > capacity(top_k_)) bound();
    std::int64_t k = 0;
    if constexpr (std::is_same_v<Elem, float>)
      if (bounded_) {
        const V threshold = V::set1(threshold_), zero = V::zero(), one = V::set1(1.0f);
        V not_numbers = zero;
        for (; k + 16 <= n; k += 16) {
          const V score = V::load(scores + k);
          not_numbers = fma(score, zero, not_numbers);
          if (reduce_tree(select_gt(score, threshold, one, zero)) != 0) add_each(scores, k, k + 16, position);
        }
        if (!(reduce_tree(not_numbers) == 0))  // an infinity, too
          for (std::int64_t i = 0; i < k; ++i) nan_ |= scores[i] != scores[i];
      }
    add_each(scores, k, n, position);
  }
  // The best top_k, or all where there are fewer, in ascending positions; and how many.
  const std::uint64_t* finish(std::int64_t* count) {
    if (top_k_ <= kFewSelected)
      std::sort(held_, held_ + count_, [](std::uint64_t a, std::uint64_t b) { return static_cast<std::uint32_t>(a) < static_cast<std::uint32_t>(b); });
    else if (count_ > top_k_) keep_best(held_, count_, top_k_), count_ = top_k_;
    *count = count_;
    return held_;
  }
  bool nan() const { return nan_; }

 private:
  // Without a branch that a processor would have to guess.
  void add_each(const Elem* scores, std::int64_t begin, std::int64_t end, std::int64_t position) {
    for (std::int64_t k = begin; k < end; ++k) {
      const float score = value_of(scores[k]);
      nan_ |= score != score;
      if (top_k_ <= kFewSelected) {
        insert(candidate(score, position + k));
        continue;
      }
      held_[count_] = candidate(score, position + k);
      count_ += !bounded_ || score > threshold_ ? 1 : 0;  // an equal score stands behind those that are held
    }
  }
  // Behind those with greater or equal scores.
  void insert(std::uint64_t key) {
    if (count_ == top_k_ && order_of(key) <= order_of(held_[count_ - 1])) return;
    std::int64_t at = count_ < top_k_ ? count_++ : count_ - 1;
    for (; at > 0 && order_of(held_[at - 1]) < order_of(key); --at) held_[at] = held_[at - 1];
    held_[at] = key;
    if (count_ == top_k_) bound_by(order_of(held_[count_ - 1]));
  }
  void bound() {
    const std::uint32_t least = keep_best(held_, count_, top_k_);
    count_ = top_k_;
    bound_by(least);
  }
  void bound_by(std::uint32_t least) {
    bounded_ = least != 0;  // a NaN is below all numbers
    threshold_ = bits_float(least & 0x80000000u ? least ^ 0x80000000u : ~least);
  }

  std::uint64_t* held_ = nullptr;
  std::int64_t top_k_ = 0, count_ = 0;
  float threshold_ = 0;
  bool bounded_ = false, nan_ = false;
};

}  // namespace lockstep
