// Implementation of attention.h: forward and target here, the adjoint in backward.h.
#include "kernels/attention/backward.h"
#include "kernels/attention/row_keys.h"
#include "kernels/attention/single_rows.h"
#include "kernels/attention/sinks.h"

namespace lockstep {

// Of rows that may share keys.
template <class V>
void forward_of_runs(const AttentionForward& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const AttentionShape& shape = op.shape;
  const std::int64_t rows = op.q.rows, group = shape.group();
  const std::int64_t per_item = rows_per_item(rows, pool.threads(), 64), blocks = (rows + per_item - 1) / per_item;
  // Too few rows for all threads: dense rows are also cut by heads, inside a group where groups are few.
  const std::int64_t wanted = (pool.threads() + shape.kv_heads - 1) / shape.kv_heads;
  const std::int64_t pieces = op.selection || rows >= pool.threads() ? 1 : std::min<std::int64_t>(wanted, group);
  pool.run(blocks * shape.kv_heads * pieces, [&](std::int64_t item) {
    const std::int64_t begin = item / pieces / shape.kv_heads * per_item, end = std::min(rows, begin + per_item);
    const std::int64_t kv_head = item / pieces % shape.kv_heads, piece = item % pieces;
    const std::int64_t first = group * piece / pieces, heads = group * (piece + 1) / pieces - first;
    const std::int64_t h0 = kv_head * group + first;
    const std::int64_t at_once = rows_together(heads);
    const std::int64_t chains = at_once * heads, padded = padded16(chains), state = padded16(per_item * heads + 16);
    const std::size_t of_block = group_scratch<V>(shape);
    Elem* scratch = thread_scratch<Elem>(of_block + chains * kKeyBlock + 16 + 2 * padded + 2 * state + SinkState<V>::scratch_size(heads));
    EntryBlock<V> block(op.cache, op.rows, group_part(shape, kv_head), scratch);
    Elem* s = scratch + of_block;
    Elem* alpha = s + chains * kKeyBlock + 16;
    Elem* fresh = alpha + padded;  // this block's maxima, then its denominators
    Elem* row_state = fresh + padded;
    const Elem scale = element<Elem>(shape.scale);
    const SinkState<V> sinks(op.sinks, h0, heads, row_state + 2 * state);

    const auto visit = [&](std::int64_t t, std::int64_t count, std::int64_t, std::int64_t n, const Elem* panels, bool start, bool last) {
      Elem* largest = row_state + (t - begin) * heads;  // running maximum and denominator of the rows' heads
      Elem* denominator = largest + state;
      const std::int64_t step = score_step(n), all = count * heads;
      const auto query = [&](std::int64_t r, std::int64_t h) { return elements<V>(op.q) + (t + r) * op.q.stride + (h0 + h) * shape.key; };
      if (panels)
        panel_products<V, true>(
            all, [&](std::int64_t c) { return query(c / heads, c % heads); }, panels, shape.key, shape.key, n, scale, s, step);
      for (std::int64_t r = 0; r < count; ++r) {
        if (!panels) dot_products<V, true>(query(r, 0), shape.key, heads, block.entry, nullptr, shape.key, shape.key, n, scale, s + r * heads * step, step);
        if (op.keys_read) count_up(op.keys_read, t + r, h0, heads, n);
      }
      largest_scores<V>(s, step, all, n, fresh);
      for (std::int64_t h = 0; h < all; ++h) {
        const Elem old = largest[h];
        largest[h] = start || fresh[h] > old ? fresh[h] : old;
        if (!start) alpha[h] = old - largest[h];
      }
      if (!start) exp_all<V>(alpha, all);
      subtract_by_head<V>(s, all, step, n, largest);
      exp_all<V>(s, all * step);
      sums_by_head<V>(s, step, all, n, fresh);
      for (std::int64_t h = 0; h < all; ++h) denominator[h] = start ? fresh[h] : fused(denominator[h], alpha[h], fresh[h]);
      if (last && sinks.there) sinks.join(heads, largest, denominator);  // one row: only rows with more keys go together
      const Elem *before = start ? nullptr : alpha, *sink = last && sinks.there ? sinks.alpha : nullptr, *all_of = last ? denominator : nullptr;
      const ChainOutputs<V> out(elements<V>(op.o) + t * op.o.stride + h0 * shape.value, op.o.stride, shape.value, heads, count);
      weighted_sums<V>(
          s, step, all, block.values(), n, shape.value, [](std::int64_t, std::int64_t, int) { return V::zero(); },
          [&out, before, sink, all_of](V sum, std::int64_t c, std::int64_t column, int lanes) {
            Elem* to = out.of(c) + column;
            if (before) sum = fma(V::load_partial(to, lanes), V::set1(before[c]), sum);
            if (sink) sum = sum * V::set1(sink[c]);
            if (all_of) sum = sum / V::set1(all_of[c]);
            store_lanes(sum, to, lanes);
          });
      if (!last) return;
      Elem* log_sum = elements<V>(op.log_sum) + t * op.log_sum.stride + h0;
      for (std::int64_t h = 0; h < heads; h += 16) (V::load(largest + h) + log(V::load(denominator + h))).store_partial(log_sum + h, lanes_left(heads, h));
    };
    for_key_blocks<V, false>(block, op.rows, op.selection, op.count, shape.window, heads, begin, end, 0, INT64_MAX, at_once, visit);
  });
}

// The rows [begin, end) alone.
static inline AttentionForward forward_part(const AttentionForward& op, std::int64_t begin, std::int64_t end) {
  AttentionForward part = op;
  for (View* const v : {&part.o, &part.log_sum, &part.q, &part.keys_read, &part.rows.position, &part.rows.sequence})
    if (*v) *v = v->row_range(begin, end - begin);
  return part;
}

template <class V>
void attention_forward(const AttentionForward& op, ThreadPool& pool) {
  if (!single_rows_pay(op)) return forward_of_runs<V>(op, pool);
  const std::int64_t rows = op.q.rows;
  const auto sequence = [&](std::int64_t t) { return ints(op.rows.sequence)[t * op.rows.sequence.stride]; };
  const auto alone = [&](std::int64_t t) { return (t == 0 || sequence(t - 1) != sequence(t)) && (t + 1 == rows || sequence(t + 1) != sequence(t)); };
  for (std::int64_t begin = 0, end; begin < rows; begin = end) {
    const bool single = alone(begin);
    for (end = begin + 1; end < rows && alone(end) == single;) ++end;
    const AttentionForward part = forward_part(op, begin, end);
    if (single) with_stored<V>(part.cache, [&]<class Stored>(const Stored* cache) { SingleRows<V, Stored>(part, cache, pool).run(); });
    else forward_of_runs<V>(part, pool);
  }
}

template <class V>
void attention_target(const AttentionTarget& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const AttentionShape& shape = op.shape;
  const std::int64_t rows = op.q.rows, heads = shape.heads, width = shape.key;
  const std::int64_t per_item = rows_per_item(rows, pool.threads(), 32);
  pool.run((rows + per_item - 1) / per_item, [&](std::int64_t item) {
    Elem* scratch = thread_scratch<Elem>(EntryBlock<V>::scratch_size(width) + heads * kKeyBlock + 16);
    EntryBlock<V> block(op.cache, op.rows, width, scratch);  // keys alone
    Elem* s = scratch + EntryBlock<V>::scratch_size(width);
    const Elem scale = element<Elem>(shape.scale);
    const auto visit = [&](std::int64_t t, std::int64_t, std::int64_t at, std::int64_t n, const Elem* panels, bool, bool) {
      const std::int64_t step = score_step(n);
      dot_products<V, true>(elements<V>(op.q) + t * op.q.stride, width, heads, block.entry, panels, width, width, n, scale, s, step);
      subtract_by_head<V>(s, heads, step, n, elements<V>(op.log_sum) + t * op.log_sum.stride);
      exp_all<V>(s, heads * step);
      Elem* target = elements<V>(op.target) + t * op.target.stride + at;
      for (std::int64_t k = 0; k < n; ++k) {
        Elem sum = element<Elem>(0.0f);
        for (std::int64_t h = 0; h < heads; ++h) sum = sum + s[h * step + k];
        target[k] = target[k] + sum;
      }
    };
    for_key_blocks<V, false>(block, op.rows, op.selection, op.count, 0, heads, item * per_item, std::min(rows, (item + 1) * per_item), 0, INT64_MAX, 1, visit);
  });
}

template <class V>
void attention_sinks(const AttentionSinks& op, ThreadPool& pool) {
  using Elem = typename V::Elem;
  const std::int64_t rows = op.dsink.rows, heads = op.dsink.cols, value = op.dout.cols / heads;
  pool.run((rows + 15) / 16, [&](std::int64_t block) {
    Elem* p = thread_scratch<Elem>(static_cast<std::size_t>(padded16(heads)));
    for (std::int64_t t = block * 16; t < std::min(rows, block * 16 + 16); ++t) {
      const Elem *dout = elements<V>(op.dout) + t * op.dout.stride, *o = elements<V>(op.o) + t * op.o.stride;
      with_stored<V>(op.sinks, [&](const auto* sink) {
        for (std::int64_t h = 0; h < heads; h += 16) {
          const int lanes = lanes_left(heads, h);
          exp(V::load_partial(sink + h, lanes) - V::load_partial(elements<V>(op.log_sum) + t * op.log_sum.stride + h, lanes)).store(p + h);
        }
      });
      Elem* dsink = elements<V>(op.dsink) + t * op.dsink.stride;
      for (std::int64_t h = 0; h < heads; ++h) dsink[h] = p[h] * (element<Elem>(0.0f) - dot16<V>(dout + h * value, o + h * value, value));
    }
  });
}

LOCKSTEP_INSTANTIATE(attention_forward, AttentionForward)
LOCKSTEP_INSTANTIATE(attention_sinks, AttentionSinks)
LOCKSTEP_INSTANTIATE(attention_backward, AttentionBackward)
LOCKSTEP_INSTANTIATE(attention_target, AttentionTarget)

}  // namespace lockstep
