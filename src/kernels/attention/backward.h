// The backward of attention.h, one kv head of a sequence at a time, in tiles (query blocks x a range of keys) of bounded scratch:
//   1. per row: P, dS and dq; stores dS * scale and P of all heads for each pair (row, key);
//   2. per key: the pairs of that key, rows ascending, are summed into dentry; dense, for some neighbouring keys at a time.
// Short sequences are one work item each; in one that is a large part of the batch both steps run on all threads.
#pragma once
#include "kernels/attention/row_keys.h"

namespace lockstep {

// What step 1 leaves to step 2. A type of its own, so that thread_scratch gives it memory of its own.
template <class V>
struct PairScratch {
  typename V::Elem value;
};
// Most elements of PairScratch of a tile, which is cut to fit (but never below 64 query rows x 64 keys).
inline constexpr std::int64_t kPairScratch = 1 << 19;
// In a text of more than so many cut tiles of keys hardly any pair of a selection lies in each, and finding them would take longer than computing them: then
// the pairs of one query block are there together, if they are at most so many elements (64 rows of 2,048 keys and 64 heads).
inline constexpr std::int64_t kMostKeyTiles = 8, kSelectedScratch = 1 << 24;

// A query row and a key of its selection: the key's place in the tile, the row, and the number of the pair among those of all rows in order.
struct TilePair {
  std::int32_t key, row, pair;
};

// A tile: query rows [row, row + rows) and key positions [key, key + keys) of a sequence; the heads of one kv head. Row t is
// position t - begin, and dentry's row `entry` is the key at position 0.
template <class V>
struct BackwardTile {
  std::int64_t kv_head, begin, entry, row, rows, key, keys;
  // Of a selection, per pair: dS * scale of the heads, P of the heads. Dense, per row: dS * scale, head by head over the keys
  // (key_step apart), then P likewise.
  typename V::Elem* coefficients;
  std::int64_t key_step;
  // Of a selection alone:
  std::int32_t* pair_begin;   // [rows + 1]: first pair of each row
  std::int32_t* rank_begin;   // [rows]: the rank of that pair
  std::int32_t* group_begin;  // [groups + 1]: first list entry of each key that is selected here
  TilePair* list;             // by key, rows ascending
  std::int64_t groups;
};

// Numbers the tile's pairs and lists them by key: sorted by eleven bits of the key at a time, which takes as long as there are pairs, however many keys the
// rows could have selected. `spare`: as many elements as the list has.
template <class V>
void list_pairs(const AttentionBackward& op, BackwardTile<V>& tile, TilePair* spare) {
  constexpr int kBits = 11;
  std::int32_t pairs = 0;
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    const RowKeys keys = keys_of_row<V>(op.rows, op.selection, op.count, 0, tile.row + r);
    const RankRange ranks = ranks_between<V>(keys, tile.key, tile.key + tile.keys);
    tile.pair_begin[r] = pairs;
    tile.rank_begin[r] = static_cast<std::int32_t>(ranks.begin);
    for (std::int64_t rank = ranks.begin; rank < ranks.end; ++rank, ++pairs)
      tile.list[pairs] = {static_cast<std::int32_t>(keys.positions[rank] - tile.key), static_cast<std::int32_t>(tile.row + r), pairs};
  }
  tile.pair_begin[tile.rows] = pairs;
  std::int32_t next[1 << kBits];
  for (int shift = 0; (tile.keys - 1) >> shift > 0; shift += kBits) {
    const auto digit = [shift](const TilePair& p) { return p.key >> shift & ((1 << kBits) - 1); };
    const std::int64_t digits = std::min<std::int64_t>(1 << kBits, ((tile.keys - 1) >> shift) + 1);
    std::memset(next, 0, static_cast<std::size_t>(digits) * sizeof *next);
    for (std::int32_t i = 0; i < pairs; ++i) ++next[digit(tile.list[i])];
    std::int32_t before = 0;
    for (std::int64_t d = 0; d < digits; ++d) {
      const std::int32_t here = next[d];
      next[d] = before;
      before += here;
    }
    for (std::int32_t i = 0; i < pairs; ++i) spare[next[digit(tile.list[i])]++] = tile.list[i];
    std::swap(tile.list, spare);
  }
  tile.groups = 0;
  for (std::int32_t i = 0; i < pairs; ++i)
    if (i == 0 || tile.list[i].key != tile.list[i - 1].key) tile.group_begin[tile.groups++] = i;
  tile.group_begin[tile.groups] = pairs;
}

// Step 1 for the rows [begin, end) of a tile.
template <class V>
void backward_rows(const AttentionBackward& op, const BackwardTile<V>& tile, std::int64_t begin, std::int64_t end) {
  using Elem = typename V::Elem;
  const AttentionShape& shape = op.shape;
  const std::int64_t heads = shape.group(), h0 = tile.kv_head * heads, key = shape.key, value = shape.value;
  const Elem scale = element<Elem>(shape.scale);
  const std::int64_t at_once = rows_together(heads);
  const std::size_t part = static_cast<std::size_t>(at_once * heads * kKeyBlock + 16), of_block = group_scratch<V>(shape);
  Elem* scratch = thread_scratch<Elem>(of_block + 2 * part + static_cast<std::size_t>(2 * (end - begin) * heads));
  EntryBlock<V> block(op.cache, op.rows, group_part(shape, tile.kv_head), scratch);
  Elem* p = scratch + of_block;
  Elem* ds = p + part;
  Elem* delta = ds + part;  // of the heads of each row
  Elem* log_sum = delta + (end - begin) * heads;
  const auto query = [&](std::int64_t t, std::int64_t h) { return elements<V>(op.q) + t * op.q.stride + (h0 + h) * key; };
  const auto out_gradient = [&](std::int64_t t, std::int64_t h) { return elements<V>(op.dout) + t * op.dout.stride + (h0 + h) * value; };
  for (std::int64_t t = begin; t < end; ++t)
    for (std::int64_t h = 0; h < heads; ++h) {
      delta[(t - begin) * heads + h] = dot16<V>(out_gradient(t, h), elements<V>(op.o) + t * op.o.stride + (h0 + h) * value, value);
      log_sum[(t - begin) * heads + h] = elements<V>(op.log_sum)[t * op.log_sum.stride + h0 + h];
    }

  const auto visit = [&](std::int64_t t, std::int64_t count, std::int64_t at, std::int64_t n, const Elem* panels, bool start, bool last) {
    const std::int64_t step = score_step(n), all = count * heads, first = (t - begin) * heads;
    if (panels) {
      panel_products<V, true>(
          all, [&](std::int64_t c) { return query(t + c / heads, c % heads); }, panels, key, key, n, scale, p, step);
      panel_products<V, false>(
          all, [&](std::int64_t c) { return out_gradient(t + c / heads, c % heads); }, block.value_panels, block.value_panel_width(), value, n, scale, ds,
          step);
    } else {
      for (std::int64_t r = 0; r < count; ++r) {
        dot_products<V, true>(query(t + r, 0), key, heads, block.entry, nullptr, key, key, n, scale, p + r * heads * step, step);
        dot_products<V, false>(out_gradient(t + r, 0), value, heads, block.values(), nullptr, value, value, n, scale, ds + r * heads * step, step);
      }
    }
    subtract_by_head<V>(p, all, step, n, log_sum + first);
    exp_all<V>(p, all * step);
    subtract_by_head<V>(ds, all, step, n, delta + first);
    for (std::int64_t i = 0; i < all * step; i += 16) (V::load(p + i) * V::load(ds + i)).store(ds + i);
    const ChainOutputs<V> dq(elements<V>(op.dq) + t * op.dq.stride + h0 * key, op.dq.stride, key, heads, count);
    weighted_sums<V>(
        ds, step, all, block.entry, n, key,
        [&dq, start](std::int64_t c, std::int64_t column, int lanes) { return start ? V::zero() : V::load_partial(dq.of(c) + column, lanes); },
        [&dq, last, scale](V sum, std::int64_t c, std::int64_t column, int lanes) {
          if (last) sum = sum * V::set1(scale);
          store_lanes(sum, dq.of(c) + column, lanes);
        });
    const std::int64_t r = t - tile.row;
    if (!op.selection) {
      for (std::int64_t c = 0; c < all; ++c) {
        Elem* const to = tile.coefficients + ((r + c / heads) * 2 * heads + c % heads) * tile.key_step + at - tile.key;
        for (std::int64_t k = 0; k < n; k += 16) {
          const int lanes = lanes_left(n, k);
          store_lanes(V::load_partial(ds + c * step + k, lanes) * V::set1(scale), to + k, lanes);
          store_lanes(V::load_partial(p + c * step + k, lanes), to + heads * tile.key_step + k, lanes);
        }
      }
      return;
    }
    Elem* c = tile.coefficients + (tile.pair_begin[r] + at - tile.rank_begin[r]) * 2 * heads;
    for (std::int64_t k = 0; k < n; ++k, c += 2 * heads)
      for (std::int64_t h = 0; h < heads; ++h) {
        c[h] = ds[h * step + k] * scale;
        c[heads + h] = p[h * step + k];
      }
  };
  for_key_blocks<V, true>(block, op.rows, op.selection, op.count, shape.window, heads, begin, end, tile.key, tile.key + tile.keys, at_once, visit);
}

// Which terms a vector of entry columns gets: both: of the key and of the value, which is in it; mixed: of the key, and of the value in its first
// lanes; key, value: of that alone.
enum class EntryColumns { both, mixed, key, value };

// Step 2 of one key for `Vectors` column vectors from `column` of the key (or of the value) on, which stand at dentry; list entries
// [begin, end). Partial: one vector of `lanes`.
template <class V, int Vectors, EntryColumns kind, bool Partial>
void backward_columns(const AttentionBackward& op, const BackwardTile<V>& tile, std::int32_t begin, std::int32_t end, std::int64_t column, int lanes,
                      typename V::Elem* dentry) {
  using Elem = typename V::Elem;
  constexpr bool of_key = kind != EntryColumns::value, of_value = kind != EntryColumns::key;
  const std::int64_t heads = op.shape.group(), h0 = tile.kv_head * heads, key = op.shape.key, value = op.shape.value;
  const int leaves = head_leaf_count(heads);
  const std::int64_t leaf_heads = heads / leaves;
  const int value_lanes = kind == EntryColumns::mixed ? static_cast<int>(value - column) : lanes;
  const V value_mask = kind == EntryColumns::mixed ? lane_mask<V>(value_lanes) : V::zero();
  const Elem *q = elements<V>(op.q) + h0 * key + column, *dout = elements<V>(op.dout) + h0 * value + column;
  V total[Vectors], leaf[Vectors][8];
  for (int c = 0; c < Vectors; ++c) total[c] = load_columns<V, Partial>(dentry + 16 * c, lanes);
  while (begin < end) {
    const std::int64_t query_block = (tile.list[begin].row - tile.begin) / kKeyBlock;
    std::int32_t stop = begin + 1;
    while (stop < end && (tile.list[stop].row - tile.begin) / kKeyBlock == query_block) ++stop;
    for (int g = 0; g < leaves; ++g) {
      V sum[Vectors];
      for (int c = 0; c < Vectors; ++c) sum[c] = V::zero();
      for (std::int32_t i = begin; i < stop; ++i) {
        const std::int64_t t = tile.list[i].row;
        const Elem* weight = tile.coefficients + static_cast<std::int64_t>(tile.list[i].pair) * 2 * heads;
        for (std::int64_t h = g * leaf_heads; h < (g + 1) * leaf_heads; ++h) {
          const Elem* q_h = q + t * op.q.stride + h * key;
          const Elem* dout_h = dout + t * op.dout.stride + h * value;
          const V ds = V::set1(weight[h]), p = V::set1(weight[heads + h]);
          for (int c = 0; c < Vectors; ++c) {
            if constexpr (of_key) sum[c] = fma(ds, load_columns<V, Partial>(q_h + 16 * c, lanes), sum[c]);
            if constexpr (kind == EntryColumns::mixed) sum[c] = select_gt(value_mask, V::zero(), fma(p, V::load_partial(dout_h, value_lanes), sum[c]), sum[c]);
            else if constexpr (of_value) sum[c] = fma(p, load_columns<V, Partial>(dout_h + 16 * c, lanes), sum[c]);
          }
        }
      }
      for (int c = 0; c < Vectors; ++c) leaf[c][g] = sum[c];
    }
    for (int c = 0; c < Vectors; ++c) total[c] = total[c] + join_pairwise(leaf[c], leaves);
    begin = stop;
  }
  for (int c = 0; c < Vectors; ++c) {
    if constexpr (Partial) total[c].store_partial(dentry + 16 * c, lanes);
    else total[c].store(dentry + 16 * c);
  }
}

// The same, dense, for `Keys` neighbouring keys from key_at of the tile on, none of which begins in another query block than the
// first; with a window one key, since the last rows that see it are its own, and before Rows::first_key one key, which its own row alone sees.
// dentry: of the first key; the next stands op.dentry.stride further.
template <class V, int Keys, int Vectors, EntryColumns kind, bool Partial>
void backward_columns_dense(const AttentionBackward& op, const BackwardTile<V>& tile, std::int64_t key_at, std::int64_t column, int lanes,
                            typename V::Elem* dentry) {
  using Elem = typename V::Elem;
  constexpr bool of_key = kind != EntryColumns::value, of_value = kind != EntryColumns::key;
  const std::int64_t heads = op.shape.group(), h0 = tile.kv_head * heads, key = op.shape.key, value = op.shape.value;
  const int leaves = head_leaf_count(heads);
  const std::int64_t leaf_heads = heads / leaves, first_key = tile.begin + tile.key + key_at, window = op.shape.window;
  const std::int64_t reach = tile.key + key_at < op.rows.first_key ? 1 : window > 0 ? window : tile.row + tile.rows - first_key;  // rows that see it
  const std::int64_t end = std::min(tile.row + tile.rows, first_key + reach);
  const int value_lanes = kind == EntryColumns::mixed ? static_cast<int>(value - column) : lanes;
  const V value_mask = kind == EntryColumns::mixed ? lane_mask<V>(value_lanes) : V::zero();
  const Elem *q = elements<V>(op.q) + h0 * key + column, *dout = elements<V>(op.dout) + h0 * value + column;
  V total[Keys][Vectors], leaf[Keys][Vectors][8];
  for (int j = 0; j < Keys; ++j)
    for (int c = 0; c < Vectors; ++c) total[j][c] = load_columns<V, Partial>(dentry + j * op.dentry.stride + 16 * c, lanes);
  for (std::int64_t row = std::max(tile.row, first_key); row < end;) {
    const std::int64_t stop = std::min(end, tile.begin + ((row - tile.begin) / kKeyBlock + 1) * kKeyBlock);
    for (int g = 0; g < leaves; ++g) {
      V sum[Keys][Vectors];
      for (int j = 0; j < Keys; ++j)
        for (int c = 0; c < Vectors; ++c) sum[j][c] = V::zero();
      // One row's terms of the first `seen` keys.
      const auto add_row = [&](std::int64_t t, int seen) {
        const Elem* of_row = tile.coefficients + (t - tile.row) * 2 * heads * tile.key_step + key_at;
        for (std::int64_t h = g * leaf_heads; h < (g + 1) * leaf_heads; ++h) {
          const Elem* q_h = q + t * op.q.stride + h * key;
          const Elem* dout_h = dout + t * op.dout.stride + h * value;
          const Elem *ds = of_row + h * tile.key_step, *p = ds + heads * tile.key_step;
#pragma GCC unroll 8
          for (int j = 0; j < Keys; ++j) {
            if (j >= seen) break;
            for (int c = 0; c < Vectors; ++c) {
              if constexpr (of_key) sum[j][c] = fma(V::set1(ds[j]), load_columns<V, Partial>(q_h + 16 * c, lanes), sum[j][c]);
              if constexpr (kind == EntryColumns::mixed)
                sum[j][c] = select_gt(value_mask, V::zero(), fma(V::set1(p[j]), V::load_partial(dout_h, value_lanes), sum[j][c]), sum[j][c]);
              else if constexpr (of_value) sum[j][c] = fma(V::set1(p[j]), load_columns<V, Partial>(dout_h + 16 * c, lanes), sum[j][c]);
            }
          }
        }
      };
      std::int64_t t = row;
      for (; t < stop && t - first_key + 1 < Keys; ++t) add_row(t, static_cast<int>(t - first_key + 1));
      for (; t < stop; ++t) add_row(t, Keys);
      for (int j = 0; j < Keys; ++j)
        for (int c = 0; c < Vectors; ++c) leaf[j][c][g] = sum[j][c];
    }
    for (int j = 0; j < Keys; ++j)
      for (int c = 0; c < Vectors; ++c) total[j][c] = total[j][c] + join_pairwise(leaf[j][c], leaves);
    row = stop;
  }
  for (int j = 0; j < Keys; ++j)
    for (int c = 0; c < Vectors; ++c) {
      if constexpr (Partial) total[j][c].store_partial(dentry + j * op.dentry.stride + 16 * c, lanes);
      else total[j][c].store(dentry + j * op.dentry.stride + 16 * c);
    }
}

// The columns of a kv head in an entry, at most `Wide` vectors at once: f(kind, vectors, partial, column of the key or value, lanes, column of the
// entry); the first three as constants.
template <class V, int Wide, class F>
void for_entry_columns(const AttentionShape& shape, const EntryPart& part, const F& f) {
  const auto range = [&](auto kind, std::int64_t c, std::int64_t end, std::int64_t at) {
    const std::false_type whole;
    for (; c + 16 * Wide <= end; c += 16 * Wide) f(kind, std::integral_constant<int, Wide>(), whole, c, 16, at + c);
    if constexpr (Wide > 2)
      for (; c + 32 <= end; c += 32) f(kind, std::integral_constant<int, 2>(), whole, c, 16, at + c);
    for (; c + 16 <= end; c += 16) f(kind, std::integral_constant<int, 1>(), whole, c, 16, at + c);
    if (c < end) f(kind, std::integral_constant<int, 1>(), std::true_type(), c, lanes_left(end, c), at + c);
  };
  const std::integral_constant<EntryColumns, EntryColumns::key> of_key;
  if (!shape.value_in_key) {
    range(of_key, 0, shape.key, part.key_begin);
    range(std::integral_constant<EntryColumns, EntryColumns::value>(), 0, shape.value, part.value_begin);
    return;
  }
  // Vectors of both, the one where the value ends, the rest of the key.
  std::int64_t c = shape.value / 16 * 16;
  range(std::integral_constant<EntryColumns, EntryColumns::both>(), 0, c, 0);
  if (c < shape.value) {
    f(std::integral_constant<EntryColumns, EntryColumns::mixed>(), std::integral_constant<int, 1>(), std::true_type(), c, lanes_left(shape.key, c), c);
    c += 16;
  }
  range(of_key, c, shape.key, 0);
}

// Step 2 for the keys [begin, end) of a tile, of a selection those that have a pair; begin a multiple of the keys taken at once.
template <class V>
void backward_keys(const AttentionBackward& op, const BackwardTile<V>& tile, std::int64_t begin, std::int64_t end) {
  const EntryPart part = group_part(op.shape, tile.kv_head);
  const auto dentry = [&](std::int64_t k) { return elements<V>(op.dentry) + (tile.entry + tile.key + k) * op.dentry.stride; };
  if (!op.selection) {
    // Columns outside, keys inside: all keys read the same few columns of the rows' queries and gradients, which mostly stay in the first cache.
    constexpr int kKeys = V::kRows >= 6 ? 4 : 1, kWide = kKeys > 1 && V::kRows < 12 ? 1 : kColumnTile<V>;
    for_entry_columns<V, kWide>(op.shape, part, [&](auto kind, auto vectors, auto partial, std::int64_t c, int lanes, std::int64_t at) {
      const auto take = [&](auto keys, std::int64_t k) {
        backward_columns_dense<V, keys(), vectors(), kind(), partial()>(op, tile, k, c, lanes, dentry(k) + at);
      };
      std::int64_t k = begin;
      while (k < end && (tile.key + k < op.rows.first_key || k % kKeys != 0)) take(std::integral_constant<int, 1>(), k++);  // none where first_key is 0
      for (; k + kKeys <= end && op.shape.window == 0; k += kKeys) take(std::integral_constant<int, kKeys>(), k);
      for (; k < end; ++k) take(std::integral_constant<int, 1>(), k);
    });
    return;
  }
  for (std::int64_t k = begin; k < end; ++k) {
    const std::int32_t first = tile.group_begin[k], last = tile.group_begin[k + 1];
    for_entry_columns<V, kColumnTile<V>>(op.shape, part, [&](auto kind, auto vectors, auto partial, std::int64_t c, int lanes, std::int64_t at) {
      backward_columns<V, vectors(), kind(), partial()>(op, tile, first, last, c, lanes, dentry(tile.list[first].key) + at);
    });
  }
}

// The rows [begin, end) of a sequence, from position `first` on; `entry` is dentry's row of its key at position 0.
struct SequenceRows {
  std::int64_t begin, end, first, entry;
};
static inline SequenceRows rows_of_sequence(const Rows& rows, std::int64_t s) {
  const auto at = [s](const View& v, std::int64_t next) { return std::int64_t{ints(v)[(s + next) * v.stride]}; };
  const std::int64_t begin = at(rows.sequence_begin, 0), end = at(rows.sequence_begin, 1);
  if (!rows.first) return {begin, end, 0, begin};
  return {begin, end, at(rows.first, 0), at(rows.key_begin, 0)};
}

// One kv head of one sequence. run(count, work) calls work(i) for each i < count, in any order, on any threads.
template <class V, class Run>
void backward_sequence(const AttentionBackward& op, std::int64_t kv_head, const SequenceRows& sequence, const Run& run) {
  const std::int64_t zero = sequence.begin - sequence.first, end = sequence.end;  // row `zero` would be position 0
  const std::int64_t length = end - sequence.begin, positions = end - zero, per_pair = 2 * op.shape.group();
  const std::int64_t most_keys = op.selection ? std::min(op.selection.cols, positions) : positions;
  // As many query blocks as fit; where not even one does, the keys are cut too.
  const auto blocks_that_fit = [&](std::int64_t others) { return std::max<std::int64_t>(1, kPairScratch / (kKeyBlock * others * per_pair)) * kKeyBlock; };
  const std::int64_t block_rows = blocks_that_fit(most_keys), span = std::min(length, block_rows);
  const std::int64_t cut_keys = blocks_that_fit(kKeyBlock), block_pairs = kKeyBlock * most_keys * per_pair;
  const bool scattered = op.selection && positions > kMostKeyTiles * cut_keys && block_pairs <= kSelectedScratch;
  const std::int64_t tile_keys = block_pairs <= kPairScratch || scattered ? positions : std::min(positions, cut_keys);
  const std::int64_t key_step = padded16(tile_keys);
  const std::int64_t pairs = span * (op.selection ? std::min(most_keys, tile_keys) : key_step);
  auto* coefficients = reinterpret_cast<typename V::Elem*>(thread_scratch<PairScratch<V>>(static_cast<std::size_t>(pairs * per_pair)));
  std::int32_t* numbers = op.selection ? thread_scratch<std::int32_t>(static_cast<std::size_t>(2 * span + pairs + 2)) : nullptr;
  TilePair* list = op.selection ? thread_scratch<TilePair>(static_cast<std::size_t>(2 * pairs)) : nullptr;

  const EntryPart part = group_part(op.shape, kv_head);
  const auto clear = [&](std::int64_t t, std::int64_t column, std::int64_t width) {
    auto* dentry = elements<V>(op.dentry) + t * op.dentry.stride + column;
    for (std::int64_t c = 0; c < width; c += 16) V::zero().store_partial(dentry + c, lanes_left(width, c));
  };
  const std::int64_t end_key = std::min(positions, op.end_key), first_clear = op.continues ? std::max(op.first_key, sequence.first) : op.first_key;
  for (std::int64_t p = first_clear; p < end_key; ++p)
    clear(sequence.entry + p, part.key_begin, part.key), clear(sequence.entry + p, part.value_begin, part.value);
  // A tile ends where a query block of absolute positions does.
  for (std::int64_t row = sequence.begin, rows; row < end; row += rows) {
    rows = std::min(block_rows - (row - zero) % kKeyBlock, end - row);
    const std::int64_t visible = std::min(row + rows - zero, end_key);
    for (std::int64_t key = op.first_key; key < visible; key += tile_keys) {
      BackwardTile<V> tile{kv_head,      zero,     sequence.entry, row,     rows,    key,  std::min(tile_keys, visible - key),
                           coefficients, key_step, numbers,        nullptr, nullptr, list, 0};
      if (op.selection) {
        tile.rank_begin = tile.pair_begin + span + 1;
        tile.group_begin = tile.rank_begin + span;
        list_pairs(op, tile, list + pairs);
      }
      const std::int64_t places = op.selection ? tile.groups : tile.keys;
      constexpr std::int64_t kRowsAtOnce = 32, kKeysAtOnce = 32;
      run((rows + kRowsAtOnce - 1) / kRowsAtOnce,
          [&](std::int64_t i) { backward_rows(op, tile, row + i * kRowsAtOnce, row + std::min(rows, (i + 1) * kRowsAtOnce)); });
      run((places + kKeysAtOnce - 1) / kKeysAtOnce, [&](std::int64_t i) { backward_keys(op, tile, i * kKeysAtOnce, std::min(places, (i + 1) * kKeysAtOnce)); });
    }
  }
}

template <class V>
void attention_backward(const AttentionBackward& op, ThreadPool& pool) {
  const std::int64_t sequences = op.rows.sequence_begin.rows - 1, kv_heads = op.shape.kv_heads;
  const auto shared = [&](const SequenceRows& s) {
    const std::int64_t length = s.end - s.begin;
    return pool.threads() > 1 && length >= 2 * kKeyBlock && length * 2 * pool.threads() > op.q.rows;
  };
  for (std::int64_t s = 0; s < sequences; ++s) {
    const SequenceRows rows = rows_of_sequence(op.rows, s);
    if (!shared(rows)) continue;
    for (std::int64_t kv_head = 0; kv_head < kv_heads; ++kv_head)
      backward_sequence<V>(op, kv_head, rows, [&](std::int64_t count, const auto& work) { pool.run(count, work); });
  }
  pool.run(sequences * kv_heads, [&](std::int64_t item) {
    const SequenceRows rows = rows_of_sequence(op.rows, item / kv_heads);
    if (rows.begin == rows.end || shared(rows)) return;
    backward_sequence<V>(op, item % kv_heads, rows, [](std::int64_t count, const auto& work) {
      for (std::int64_t i = 0; i < count; ++i) work(i);
    });
  });
}

}  // namespace lockstep
