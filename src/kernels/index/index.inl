// Implementation of index.h: scoring and selection here (candidates.h), the loss in loss.h.
#include "kernels/cache/entries.h"
#include "kernels/index/candidates.h"
#include "kernels/index/loss.h"
#include "kernels/kernel_parts.h"

namespace lockstep {

// Scores of rows of one sequence against its keys, block by block, and what is selected of them.
template <class V>
class RowSelection {
 public:
  using Elem = typename V::Elem;
  // Chains (a head of a row) whose products with a block of keys are taken together.
  static constexpr std::int64_t kChains = 64;
  // Of fewer chains than size / kTurnedWidth each product is taken directly: turning a block of keys takes longer than it saves.
  static constexpr std::int64_t kTurnedWidth = 20;

  // Rows [first, end) of op, all of one sequence.
  RowSelection(const IndexSelect& op, std::int64_t first, std::int64_t end) : op_(op), first_(first), end_(end), heads_(op.heads), size_(op.size) {
    const std::int64_t padded_heads = padded16(heads_), at_once = rows_at_once();
    const std::size_t of_block = EntryBlock<V>::scratch_size(size_);
    scratch_ = thread_scratch<Elem>(of_block + static_cast<std::size_t>((end - first) * padded_heads + (at_once * heads_ + 1) * kKeyBlock));
    weights_ = scratch_ + of_block, dots_ = weights_ + (end - first) * padded_heads, scores_ = dots_ + at_once * heads_ * kKeyBlock;
    const V weight_scale = V::set1(1.0f / __builtin_sqrtf(static_cast<float>(heads_)));
    for (std::int64_t i = first; i < end; ++i)
      for (std::int64_t h = 0; h < heads_; h += 16)
        (V::load_partial(elements<V>(op.w) + i * op.w.stride + h, lanes_left(heads_, h)) * weight_scale).store(weights_ + (i - first) * padded_heads + h);
  }

  // Adds the keys [begin, end) that a row sees to its candidates: of[i - first]. `begin` is a multiple of kKeyBlock.
  void add(std::int64_t begin, std::int64_t end, Candidates<V>* of) {
    EntryBlock<V> block(op_.cache, op_.rows, size_, scratch_);
    const std::int64_t sequence = ints(op_.rows.sequence)[first_ * op_.rows.sequence.stride], at_once = rows_at_once();
    const bool direct = (end_ - first_) * heads_ * kTurnedWidth < size_;
    for (std::int64_t at = begin; at < end; at += kKeyBlock) {
      const std::int64_t n = std::min(kKeyBlock, end - at);
      block.read(sequence, nullptr, at, n);
      if (!direct) block.transpose(n);
      for (std::int64_t row = first_; row < end_; row += at_once) {
        const std::int64_t rows = std::min(at_once, end_ - row);
        products(block, row, rows, n, direct);
        for (std::int64_t i = row; i < row + rows; ++i)
          add_row(i, dots_ + (i - row) * heads_ * kKeyBlock, at, std::min(n, visible(op_, i) - at), of[i - first_]);
      }
    }
  }

  static std::int64_t visible(const IndexSelect& op, std::int64_t row) { return std::int64_t{1} + ints(op.rows.position)[row * op.rows.position.stride]; }
  static std::int64_t first_key(const IndexSelect& op, std::int64_t row) { return std::min<std::int64_t>(op.rows.first_key, visible(op, row) - 1); }

 private:
  std::int64_t rows_at_once() const { return std::clamp<std::int64_t>(kChains / heads_, 1, end_ - first_); }

  // dots_[(row, head)][key] = (q . k) * D^-1/2.
  void products(const EntryBlock<V>& block, std::int64_t row, std::int64_t rows, std::int64_t n, bool direct) {
    const Elem scale = V::set1(1.0f / __builtin_sqrtf(static_cast<float>(size_))).extract(0);
    const auto query = [&](std::int64_t chain) { return elements<V>(op_.q) + (row + chain / heads_) * op_.q.stride + chain % heads_ * size_; };
    if (!direct) return panel_products<V, true>(rows * heads_, query, block.panels, size_, size_, n, scale, dots_, kKeyBlock);
    for (std::int64_t i = 0; i < rows; ++i)
      dot_products<V, true>(query(i * heads_), size_, heads_, block.entry, nullptr, size_, size_, n, scale, dots_ + i * heads_ * kKeyBlock, kKeyBlock);
  }

  void add_row(std::int64_t row, const Elem* dots, std::int64_t at, std::int64_t n, Candidates<V>& candidates) {
    if (n <= 0) return;
    const Elem* const weight = weights_ + (row - first_) * padded16(heads_);
    for (std::int64_t k = 0; k < n; k += 16) {
      V score = V::zero();
      // 0 > x ? 0 : x lets a NaN through.
      for (std::int64_t h = 0; h < heads_; ++h) score = fma(V::set1(weight[h]), max(V::zero(), V::load(dots + h * kKeyBlock + k)), score);
      score.store(scores_ + k);
    }
    const std::int64_t hidden = std::clamp<std::int64_t>(first_key(op_, row) - at, 0, n);
    candidates.add(scores_ + hidden, n - hidden, at + hidden);
  }

  const IndexSelect& op_;
  std::int64_t first_, end_, heads_, size_;
  Elem *scratch_, *weights_, *dots_, *scores_;
};

template <class V>
void index_select(const IndexSelect& op, ThreadPool& pool) {
  const std::int64_t rows = op.q.rows, top_k = op.top_k, capacity = Candidates<V>::capacity(top_k);
  if (rows == 0) return;  // of a rank without rows
  const auto visible = [&](std::int64_t row) { return RowSelection<V>::visible(op, row); };
  const auto sequence_of = [&](std::int64_t row) { return ints(op.rows.sequence)[row * op.rows.sequence.stride]; };
  // Rows of one sequence share the reading and turning of its keys; where they are too few for all threads, keys are cut into parts.
  constexpr std::int64_t kMostRows = 32, kLeastKeys = 4096;
  const std::int64_t per_item = std::clamp<std::int64_t>(rows / (2 * pool.threads()), 1, kMostRows), items = (rows + per_item - 1) / per_item;
  std::int64_t longest = 0;
  for (std::int64_t t = 0; t < rows; ++t) longest = std::max(longest, visible(t));
  const std::int64_t parts = std::clamp<std::int64_t>((pool.threads() + items - 1) / items, 1, std::max<std::int64_t>(1, longest / kLeastKeys));

  // position(i): the i-th key that a row selects.
  const auto write_positions = [&](std::int64_t row, std::int64_t count, const auto& position) {
    std::int32_t* const selection = ints(op.selection) + row * op.selection.stride;
    for (std::int64_t i = 0; i < top_k; ++i) selection[i] = i < count ? static_cast<std::int32_t>(position(i)) : -1;
    ints(op.count)[row * op.count.stride] = static_cast<std::int32_t>(count);
  };
  const auto write = [&](std::int64_t row, const std::uint64_t* held, std::int64_t count, bool nan) {
    write_positions(row, count, [&](std::int64_t i) { return held[i]; });
    if (nan && op.flags) ints(op.flags)[row * op.flags.stride] |= 1;
  };
  // f(first, end) for runs of an item's rows of one sequence that see more than top_k keys. All keys of the others are selected without scores, where
  // `writes` says so.
  const auto runs = [&](std::int64_t item, bool writes, const auto& f) {
    const std::int64_t end = std::min(rows, (item + 1) * per_item);
    for (std::int64_t t = item * per_item, run; t < end; t = run) {
      run = t + 1;
      if (const std::int64_t first = RowSelection<V>::first_key(op, t), seen = visible(t) - first; seen <= top_k) {
        if (writes) write_positions(t, seen, [&](std::int64_t i) { return first + i; });
        continue;
      }
      while (run < end && sequence_of(run) == sequence_of(t)) ++run;
      f(t, run);
    }
  };
  const auto select = [&](std::int64_t first, std::int64_t end, std::int64_t part, const auto& done) {
    const std::int64_t keys = visible(end - 1);
    const auto from = [&](std::int64_t p) { return p == parts ? keys : keys * p / parts / kKeyBlock * kKeyBlock; };
    std::uint64_t* const held = thread_scratch<std::uint64_t>(static_cast<std::size_t>((end - first) * capacity));
    Candidates<V> candidates[kMostRows];
    for (std::int64_t i = 0; i < end - first; ++i) candidates[i].begin(held + i * capacity, top_k);
    RowSelection<V>(op, first, end).add(from(part), from(part + 1), candidates);
    for (std::int64_t i = 0; i < end - first; ++i) {
      std::int64_t count = 0;
      const std::uint64_t* const best = candidates[i].finish(&count);
      done(first + i, best, count, candidates[i].nan());
    }
  };
  if (parts == 1) {
    return run_in_parts(pool, items, per_item * longest * op.heads * op.size,
                        [&](std::int64_t item) { runs(item, true, [&](std::int64_t first, std::int64_t end) { select(first, end, 0, write); }); });
  }

  // The best of each part, then the best of those.
  std::uint64_t* const kept = thread_scratch<std::uint64_t, 9>(static_cast<std::size_t>(rows * parts * top_k));
  std::int64_t* const counts = thread_scratch<std::int64_t, 9>(static_cast<std::size_t>(2 * rows * parts));
  pool.run(items * parts, [&](std::int64_t index) {
    const std::int64_t part = index % parts;
    runs(index / parts, part == 0, [&](std::int64_t first, std::int64_t end) {
      select(first, end, part, [&](std::int64_t row, const std::uint64_t* best, std::int64_t count, bool nan) {
        __builtin_memcpy(kept + (row * parts + part) * top_k, best, static_cast<std::size_t>(count) * sizeof *best);
        counts[2 * (row * parts + part)] = count, counts[2 * (row * parts + part) + 1] = nan;
      });
    });
  });
  pool.run(items, [&](std::int64_t item) {
    runs(item, false, [&](std::int64_t first, std::int64_t end) {
      std::uint64_t* const all = thread_scratch<std::uint64_t>(static_cast<std::size_t>(parts * top_k));
      for (std::int64_t row = first; row < end; ++row) {
        std::int64_t count = 0;
        bool nan = false;
        for (std::int64_t part = 0; part < parts; ++part) {
          const std::int64_t* const of_part = counts + 2 * (row * parts + part);
          __builtin_memcpy(all + count, kept + (row * parts + part) * top_k, static_cast<std::size_t>(of_part[0]) * sizeof *all);
          count += of_part[0], nan |= of_part[1] != 0;
        }
        if (count > top_k) keep_best(all, count, top_k);
        write(row, all, std::min(count, top_k), nan);
      }
    });
  });
}

LOCKSTEP_INSTANTIATE(index_select, IndexSelect)
LOCKSTEP_INSTANTIATE(index_loss, IndexLoss)

}  // namespace lockstep
