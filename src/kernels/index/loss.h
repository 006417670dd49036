// The indexer's loss of index.h, one sequence per work item: rows ascending, so that each row's chains are added to the
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

template <class V>
void index_loss_of_sequence(const IndexLoss& op, std::int64_t begin, std::int64_t end) {
  using Elem = typename V::Elem;
  const std::int64_t heads = op.heads, size = op.size, stride = padded16(size), length = end - begin;
  const std::int64_t most = padded16(op.selection ? std::min(op.selection.cols, length) : length), panels = op.selection ? 0 : padded16(length);
  Elem* next = thread_scratch<Elem>(
      static_cast<std::size_t>(length * stride + panels * size + (2 * heads + 3) * most + padded16(heads) + 80 + EntryBlock<V>::scratch_size(size)));
  const auto carve = [&](std::int64_t count) { return std::exchange(next, next + count); };
  EntryBlock<V> block(op.cache, op.rows, size, carve(EntryBlock<V>::scratch_size(size)));
  Elem *entries = carve(length * stride), *panel = carve(panels * size), *dots = carve(heads * most), *ds = carve(heads * most);
  Elem *score = carve(most), *p = carve(most), *di = carve(most), *weight = carve(padded16(heads)), *work = carve(80);
  auto* entry = thread_scratch<const Elem*>(static_cast<std::size_t>(length + most));  // of each position; of a row's selected keys
  const Elem** chosen = entry + length;

  const float head_factor = 1.0f / __builtin_sqrtf(static_cast<float>(heads)), key_factor = 1.0f / __builtin_sqrtf(static_cast<float>(size));
  const Elem zero = element<Elem>(0.0f), key_scale = element<Elem>(key_factor);
  const std::int64_t sequence = ints(op.rows.sequence)[begin * op.rows.sequence.stride];
  for (std::int64_t at = 0; at < length; at += kKeyBlock) {
    const std::int64_t n = std::min(kKeyBlock, length - at);
    block.read(sequence, nullptr, at, n);
    for (std::int64_t k = 0; k < n; ++k) {
      for (std::int64_t i = 0; i < size; ++i) entries[(at + k) * stride + i] = block.entry[k][i];
      entry[at + k] = entries + (at + k) * stride;
    }
  }
  if (panels > 0) make_panels<V>(entry, length, size, panel);
  for (std::int64_t t = begin; t < end; ++t)
    for (std::int64_t c = 0; c < size; c += 16) V::zero().store_partial(elements<V>(op.dk) + t * op.dk.stride + c, lanes_left(size, c));

  for (std::int64_t t = begin; t < end; ++t) {
    const std::int32_t* selection = op.selection ? ints(op.selection) + t * op.selection.stride : nullptr;
    const std::int64_t n = selection ? ints(op.count)[t * op.count.stride] : t - begin + 1, step = padded16(n);
    const Elem* const* keys = entry;
    if (selection) {
      for (std::int64_t k = 0; k < n; ++k) chosen[k] = entry[selection[k]];
      keys = chosen;
    }
    const Elem* q = elements<V>(op.q) + t * op.q.stride;
    const Elem* w = elements<V>(op.w) + t * op.w.stride;
    const Elem* target = elements<V>(op.target) + t * op.target.stride;
    for (std::int64_t h = 0; h < heads; h += 16) (V::load_partial(w + h, lanes_left(heads, h)) * V::set1(head_factor)).store(weight + h);

    // I, its softmax, and the target's.
    dot_products<V, true>(q, size, heads, keys, selection ? nullptr : panel, size, size, n, key_scale, dots, step);
    for (std::int64_t k = 0; k < n; k += 16) {
      V sum = V::zero();
      for (std::int64_t h = 0; h < heads; ++h) sum = fma(V::set1(weight[h]), max(V::zero(), V::load(dots + h * step + k)), sum);
      sum.store(score + k);
    }
    const Elem log_sum = log_sum_of<V>(score, n, work);
    Elem total = zero, loss = zero;
    for (std::int64_t k = 0; k < n; ++k) total = total + target[k];
    for (std::int64_t k = 0; k < n; k += 16) {
      const V share = V::load_partial(target + k, lanes_left(n, k)) / V::set1(total), log_model = V::load(score + k) - V::set1(log_sum);
      share.store(p + k);
      (V::set1(op.weight) * (exp(log_model) - share)).store(di + k);
      (log(max(share, V::set1(1e-30f))) - log_model).store(score + k);
    }
    for (std::int64_t k = 0; k < n; ++k) loss = fused(p[k], score[k], loss);
    elements<V>(op.loss)[t * op.loss.stride] = loss;

    // Gradients of q and w.
    Elem* dw = elements<V>(op.dw) + t * op.dw.stride;
    Elem* dq = elements<V>(op.dq) + t * op.dq.stride;
    for (std::int64_t h = 0; h < heads; ++h) {
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
        ds, step, heads, keys, n, size, [](std::int64_t, std::int64_t, int) { return V::zero(); },
        [&](V sum, std::int64_t h, std::int64_t column, int lanes) { sum.store_partial(dq + h * size + column, lanes); });

    // Gradients of the keys.
    for (std::int64_t k = 0; k < n; ++k) {
      Elem* dk = elements<V>(op.dk) + (begin + (selection ? selection[k] : k)) * op.dk.stride;
      for (std::int64_t c = 0; c < size; c += 16) {
        const int lanes = lanes_left(size, c);
        V sum = V::zero();
        for (std::int64_t h = 0; h < heads; ++h) sum = fma(V::set1(ds[h * step + k]), V::load_partial(q + h * size + c, lanes), sum);
        (V::load_partial(dk + c, lanes) + sum).store_partial(dk + c, lanes);
      }
    }
  }
}

template <class V>
void index_loss(const IndexLoss& op, ThreadPool& pool) {
  const std::int32_t* first_row = ints(op.rows.sequence_begin);
  const std::int64_t step = op.rows.sequence_begin.stride;
  pool.run(op.rows.sequence_begin.rows - 1, [&](std::int64_t s) {
    const std::int64_t begin = first_row[s * step], end = first_row[(s + 1) * step];
    if (begin < end) index_loss_of_sequence<V>(op, begin, end);
  });
}

}  // namespace lockstep
