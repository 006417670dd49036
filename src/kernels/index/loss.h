// The indexer's loss of index.h: a sequence by one thread, or a long one by all of them; rows ascending, so that each row's chains are added to the
// gradients of its keys in order.
#pragma once
#include "kernels/cache/entries.h"

namespace lockstep {

// max + log(sum of e^(x - max)) over x[0..n) in blocks of 64, as attention's softmax. scratch: 80 elements.
template <class V>
typename V::Elem log_sum_of(const typename V::Elem* x, std::int64_t n, typename V::Elem* scratch) {
  using Elem = typename V::Elem;
  Elem largest = x[0], denominator = element<Elem>(0.0f);
  for (std::int64_t at = 0; at < n; at += kKeyBlock) {
    const std::int64_t here = std::min(kKeyBlock, n - at);
    Elem fresh = x[at];
    for (std::int64_t k = 1; k < here; ++k) fresh = x[at + k] > fresh ? x[at + k] : fresh;
    const Elem old = largest;
    if (at == 0 || fresh > largest) largest = fresh;
    for (std::int64_t k = 0; k < here; ++k) scratch[k] = x[at + k] - largest;
    exp_all<V>(scratch, here);
    Elem sum = element<Elem>(0.0f);
    for (std::int64_t k = 0; k < here; ++k) sum = sum + scratch[k];
    denominator = at == 0 ? sum : fused(denominator, exp_element<V>(old - largest), sum);
  }
  return largest + log_element<V>(denominator);
}

// The loss of one sequence, row by row. Rows do not depend on each other but in the gradients of keys, to which they are added in ascending order.
template <class V>
class SequenceLoss {
 public:
  using Elem = typename V::Elem;
  // Rows [begin, end) of op, all of one sequence, from position `first` on; `dk`: the row of the gradient of its key at position 0. Without a selection its
  // keys stand in scratch of the calling thread as long as no other of its kind is made there; with one each row reads its own.
  SequenceLoss(const IndexLoss& op, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t dk)
      : op_(op), zero_(begin - first), dk_(dk), heads_(op.heads), size_(op.size), sequence_(ints(op.rows.sequence)[begin * op.rows.sequence.stride]) {
    const std::int64_t length = end - zero_;
    most_ = padded16(op.selection ? std::min(op.selection.cols, length) : length);
    if (!op.selection) read_all(length);
    for (std::int64_t p = op.continues ? first : 0; p < length; ++p)
      for (std::int64_t c = 0; c < size_; c += 16) V::zero().store_partial(elements<V>(op.dk) + (dk_ + p) * op.dk.stride + c, lanes_left(size_, c));
  }

  std::int64_t pairs_a_row() const { return heads_ * most_; }
  // Loss and gradients of q and w of row t; and for `keys` what each key's dot product with each head takes, pairs_a_row() numbers.
  void row(std::int64_t t, Elem* ds) const;
  // Adds row t's chains to columns [begin, end) of its keys' gradients; `begin` is a multiple of 16.
  void keys(std::int64_t t, const Elem* ds, std::int64_t begin, std::int64_t end) const;

 private:
  void read_all(std::int64_t length) {
    const std::int64_t stride = padded16(size_);
    Elem* const scratch = thread_scratch<Elem, 9>(static_cast<std::size_t>(length * stride + padded16(length) * size_) + EntryBlock<V>::scratch_size(size_));
    EntryBlock<V> block(op_.cache, op_.rows, size_, scratch);
    Elem* const entries = scratch + EntryBlock<V>::scratch_size(size_);
    entry_ = thread_scratch<const Elem*, 9>(static_cast<std::size_t>(length));
    for (std::int64_t at = 0; at < length; at += kKeyBlock) {
      const std::int64_t n = std::min(kKeyBlock, length - at);
      block.read(sequence_, nullptr, at, n);
      for (std::int64_t k = 0; k < n; ++k) {
        for (std::int64_t i = 0; i < size_; ++i) entries[(at + k) * stride + i] = block.entry[k][i];
        entry_[at + k] = entries + (at + k) * stride;
      }
    }
    make_panels<V>(entry_, length, size_, panel_ = entries + length * stride);
  }
  // Of the n keys that row t has selected: a long sequence has many more, and no row needs the others. They stand in scratch of the calling thread.
  const Elem* const* read_selected(std::int64_t t, std::int64_t n) const {
    const std::int64_t stride = padded16(size_), blocks = (n + kKeyBlock - 1) / kKeyBlock;
    Elem* const scratch = thread_scratch<Elem, 11>(static_cast<std::size_t>(blocks * kKeyBlock * stride) + EntryBlock<V>::scratch_size(size_));
    const Elem** const chosen = thread_scratch<const Elem*>(static_cast<std::size_t>(most_));
    for (std::int64_t at = 0; at < n; at += kKeyBlock) {
      EntryBlock<V> block(op_.cache, op_.rows, size_, scratch + at * stride);  // only what it reads is used, 64 entries
      const std::int64_t here = std::min(kKeyBlock, n - at);
      block.read(sequence_, selection(t) + at, 0, here);
      std::copy_n(block.entry, here, chosen + at);
    }
    return chosen;
  }
  const std::int32_t* selection(std::int64_t t) const { return op_.selection ? ints(op_.selection) + t * op_.selection.stride : nullptr; }
  std::int64_t count(std::int64_t t) const { return op_.selection ? ints(op_.count)[t * op_.count.stride] : t - zero_ + 1; }
  // W * Hi^-1/2 of the heads of row t.
  void weights(std::int64_t t, Elem* out) const {
    const V head_factor = V::set1(1.0f / __builtin_sqrtf(static_cast<float>(heads_)));
    for (std::int64_t h = 0; h < heads_; h += 16)
      (V::load_partial(elements<V>(op_.w) + t * op_.w.stride + h, lanes_left(heads_, h)) * head_factor).store(out + h);
  }

  const IndexLoss& op_;
  std::int64_t zero_, dk_, heads_, size_, sequence_, most_ = 0;  // zero_: the row that would be position 0
  const Elem** entry_ = nullptr;                                 // of each position, without a selection
  Elem* panel_ = nullptr;
};

template <class V>
void SequenceLoss<V>::row(std::int64_t t, Elem* ds) const {
  Elem* next = thread_scratch<Elem>(static_cast<std::size_t>((heads_ + 3) * most_ + padded16(heads_) + 80));
  const auto carve = [&](std::int64_t elements) { return std::exchange(next, next + elements); };
  Elem *dots = carve(heads_ * most_), *score = carve(most_), *p = carve(most_), *di = carve(most_), *weight = carve(padded16(heads_)), *work = carve(80);
  const float head_factor = 1.0f / __builtin_sqrtf(static_cast<float>(heads_)), key_factor = 1.0f / __builtin_sqrtf(static_cast<float>(size_));
  const Elem zero = element<Elem>(0.0f), key_scale = element<Elem>(key_factor);
  const std::int64_t n = count(t), step = padded16(n);
  const Elem* const* const keys = op_.selection ? read_selected(t, n) : entry_;
  const Elem* q = elements<V>(op_.q) + t * op_.q.stride;
  const Elem* target = elements<V>(op_.target) + t * op_.target.stride;
  weights(t, weight);

  // I, its softmax, and the target's.
  dot_products<V, true>(q, size_, heads_, keys, panel_, size_, size_, n, key_scale, dots, step);
  for (std::int64_t k = 0; k < n; k += 16) {
    V sum = V::zero();
    for (std::int64_t h = 0; h < heads_; ++h) sum = fma(V::set1(weight[h]), max(V::zero(), V::load(dots + h * step + k)), sum);
    sum.store(score + k);
  }
  const Elem log_sum = log_sum_of<V>(score, n, work);
  Elem total = zero, loss = zero;
  for (std::int64_t k = 0; k < n; ++k) total = total + target[k];
  for (std::int64_t k = 0; k < n; k += 16) {
    const V share = V::load_partial(target + k, lanes_left(n, k)) / V::set1(total), log_model = V::load(score + k) - V::set1(log_sum);
    share.store(p + k);
    (V::set1(op_.weight) * (exp(log_model) - share)).store(di + k);
    (log(max(share, V::set1(1e-30f))) - log_model).store(score + k);
  }
  for (std::int64_t k = 0; k < n; ++k) loss = fused(p[k], score[k], loss);
  elements<V>(op_.loss)[t * op_.loss.stride] = loss;

  // Gradients of q and w.
  Elem* dw = elements<V>(op_.dw) + t * op_.dw.stride;
  Elem* dq = elements<V>(op_.dq) + t * op_.dq.stride;
  for (std::int64_t h = 0; h < heads_; ++h) {
    Elem sum = zero;
    for (std::int64_t k = 0; k < n; k += 16) {
      const V dot = V::load(dots + h * step + k), g = V::load(di + k);
      select_gt(dot, V::zero(), (g * V::set1(weight[h])) * V::set1(key_factor), V::zero()).store(ds + h * step + k);
      max(V::zero(), dot).store(dots + h * step + k);
    }
    for (std::int64_t k = 0; k < n; ++k) sum = fused(di[k], dots[h * step + k], sum);
    dw[h] = sum * element<Elem>(head_factor);
  }
  weighted_sums<V>(
      ds, step, heads_, keys, n, size_, [](std::int64_t, std::int64_t, int) { return V::zero(); },
      [&](V sum, std::int64_t h, std::int64_t column, int lanes) { sum.store_partial(dq + h * size_ + column, lanes); });
}

template <class V>
void SequenceLoss<V>::keys(std::int64_t t, const Elem* ds, std::int64_t begin, std::int64_t end) const {
  const std::int32_t* const selected = selection(t);
  const std::int64_t n = count(t), step = padded16(n);
  const Elem* const q = elements<V>(op_.q) + t * op_.q.stride;
  for (std::int64_t k = 0; k < n; ++k) {
    Elem* const dk = elements<V>(op_.dk) + (dk_ + (selected ? selected[k] : k)) * op_.dk.stride;
    for (std::int64_t c = begin; c < end; c += 16) {
      const int lanes = lanes_left(size_, c);
      V sum = V::zero();
      for (std::int64_t h = 0; h < heads_; ++h) sum = fma(V::set1(ds[h * step + k]), V::load_partial(q + h * size_ + c, lanes), sum);
      (V::load_partial(dk + c, lanes) + sum).store_partial(dk + c, lanes);
    }
  }
}

// Rows of one sequence by all threads, a tile after another: rows first, then columns of the keys' gradients, each of which takes the tile's rows in order.
template <class V>
void index_loss_in_tiles(const IndexLoss& op, std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t dk, ThreadPool& pool) {
  using Elem = typename V::Elem;
  constexpr std::int64_t kMostPairs = 1 << 20, kMostRows = 64;
  const SequenceLoss<V> sequence(op, begin, end, first, dk);
  const std::int64_t pairs = sequence.pairs_a_row(), rows = std::clamp<std::int64_t>(kMostPairs / pairs, pool.threads(), kMostRows);
  Elem* const ds = thread_scratch<Elem, 10>(static_cast<std::size_t>(rows * pairs));
  const std::int64_t blocks = padded16(op.size) / 16, at_once = (blocks + pool.threads() - 1) / pool.threads() * 16;
  for (std::int64_t row = begin; row < end; row += rows) {
    const std::int64_t here = std::min(rows, end - row);
    pool.run(here, [&](std::int64_t i) { sequence.row(row + i, ds + i * pairs); });
    pool.run((op.size + at_once - 1) / at_once, [&](std::int64_t i) {
      for (std::int64_t j = 0; j < here; ++j) sequence.keys(row + j, ds + j * pairs, i * at_once, std::min(op.size, (i + 1) * at_once));
    });
  }
}

template <class V>
void index_loss(const IndexLoss& op, ThreadPool& pool) {
  const std::int32_t* first_row = ints(op.rows.sequence_begin);
  const std::int64_t step = op.rows.sequence_begin.stride, sequences = op.rows.sequence_begin.rows - 1;
  const auto begin_of = [&](std::int64_t s) { return std::int64_t{first_row[s * step]}; };
  const auto position_of = [&](std::int64_t s) { return op.rows.first ? std::int64_t{ints(op.rows.first)[s * op.rows.first.stride]} : 0; };
  const auto dk_of = [&](std::int64_t s) { return op.rows.first ? std::int64_t{ints(op.rows.key_begin)[s * op.rows.key_begin.stride]} : begin_of(s); };
  // A sequence that is more than one thread's part of all rows.
  const auto shared = [&](std::int64_t s) {
    const std::int64_t length = begin_of(s + 1) - begin_of(s);
    return pool.threads() > 1 && length >= 2 * kKeyBlock && length * 2 * pool.threads() > op.q.rows;
  };
  for (std::int64_t s = 0; s < sequences; ++s)
    if (shared(s)) index_loss_in_tiles<V>(op, begin_of(s), begin_of(s + 1), position_of(s), dk_of(s), pool);
  pool.run(sequences, [&](std::int64_t s) {
    const std::int64_t begin = begin_of(s), end = begin_of(s + 1);
    if (begin == end || shared(s)) return;
    const SequenceLoss<V> sequence(op, begin, end, position_of(s), dk_of(s));
    typename V::Elem* const ds = thread_scratch<typename V::Elem, 10>(static_cast<std::size_t>(sequence.pairs_a_row()));
    for (std::int64_t t = begin; t < end; ++t) sequence.row(t, ds), sequence.keys(t, ds, 0, op.size);
  });
}

}  // namespace lockstep
