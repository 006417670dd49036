// Reads the paged cache for attention kernels: a block of up to 64 entries, their dot products with the queries
// of several heads, and weighted sums of them. Templates over V; included by the .inl files after the instruction set's
// pragma. Every product q.k is dot16 (numerics/form.h), computed in one of two ways that give the same expression: directly, or
// sixteen keys per vector over a transposed panel, where lane chains become vector chains and the tree adds whole
// vectors. A weighted sum is, per column, one ascending fma chain over the keys.
#pragma once
#include "kernels/cache/cache.h"

namespace lockstep {

// Register tiles: heads x column vectors. They change speed only.
template <class V>
inline constexpr int kHeadTile = V::kRows >= 12 ? 4 : 2;
template <class V>
inline constexpr int kPanelTile = V::kRows >= 12 ? 4 : 1;  // heads in the transposed form: its tree holds five vectors a head
template <class V>
inline constexpr int kColumnTile = V::kRows >= 12 ? 4 : 2;

// From this many keys on, the transposed form of dot16 pays.
inline constexpr std::int64_t kPanelKeys = 8;

// f(tile, h) for all heads in tiles of `Most`, the rest as one tile (of up to three) more: groups of three heads are common.
template <int Most, class F>
inline void for_head_tiles(std::int64_t heads, const F& f) {
  std::int64_t h = 0;
  for (; h + Most <= heads; h += Most) f(std::integral_constant<int, Most>(), h);
  if constexpr (Most > 2)
    if (heads - h == 3) return f(std::integral_constant<int, 3>(), h);
  if constexpr (Most > 2)
    if (heads - h == 2) return f(std::integral_constant<int, 2>(), h);
  for (; h < heads; ++h) f(std::integral_constant<int, 1>(), h);
}

// Helpers that are no templates are static: each translation unit keeps its own, compiled for its instruction set.
static inline std::int64_t padded16(std::int64_t n) { return (n + 15) / 16 * 16; }

// Transposes n entries of `width` to panels [ceil(n / 16)][width][16]. Lanes of absent keys repeat the last one
// (results unused).
template <class V>
inline void make_panels(const typename V::Elem* const* entry, std::int64_t n, std::int64_t width, typename V::Elem* panels) {
  for (std::int64_t first = 0; first < n; first += 16) {
    const typename V::Elem* lane[16];
    for (std::int64_t k = 0; k < 16; ++k) lane[k] = entry[std::min(first + k, n - 1)];
    for (std::int64_t i = 0; i < width; ++i, panels += 16)
      for (int k = 0; k < 16; ++k) panels[k] = lane[k][i];
  }
}

// What a kernel reads of an entry: the key's columns and, where values stand apart, the value's.
struct EntryPart {
  std::int64_t key_begin = 0, key = 0;
  std::int64_t value_begin = 0, value = 0;  // value 0: none, or the first columns of the key
};

template <class V>
class EntryBlock {
 public:
  using Elem = typename V::Elem;
  const Elem* entry[kKeyBlock];  // entry[k]: the k-th key
  const Elem* panels = nullptr;  // the keys transposed, or null
  const Elem* value_panels = nullptr;

  static std::size_t scratch_size(std::int64_t key, std::int64_t value = 0) {
    return static_cast<std::size_t>(2 * kKeyBlock * (padded16(key) + padded16(value)));
  }
  // scratch: scratch_size(part.key, part.value) elements that live as long as the block.
  EntryBlock(const View& cache, const Rows& rows, const EntryPart& part, Elem* scratch) : cache_(cache), rows_(rows), part_(part), scratch_(scratch) {}
  EntryBlock(const View& cache, const Rows& rows, std::int64_t key, Elem* scratch) : EntryBlock(cache, rows, EntryPart{0, key, 0, 0}, scratch) {}

  const Elem* const* values() const { return part_.value ? value_ : entry; }
  // The width of the panels of values.
  std::int64_t value_panel_width() const { return part_.value ? part_.value : part_.key; }

  // The entries of `sequence` at positions[0..n), or at first..first + n when positions is null; n <= 64.
  void read(std::int64_t sequence, const std::int32_t* positions, std::int64_t first, std::int64_t n) {
    panels = value_panels = nullptr;
    const std::int32_t* pages = ints(rows_.page_table) + sequence * rows_.page_table.stride;
    const auto size = static_cast<std::uint32_t>(rows_.page_size);
    with_stored<V>(cache_, [&](auto* base) {
      using Stored = std::remove_pointer_t<decltype(base)>;
      for (std::int64_t k = 0; k < n; ++k) {
        const auto p = static_cast<std::uint32_t>(positions ? positions[k] : first + k);
        const Stored* from = base + (static_cast<std::int64_t>(pages[p / size]) * size + p % size) * cache_.stride;
        if constexpr (std::is_same_v<Stored, Elem>) {
          entry[k] = from + part_.key_begin;
          value_[k] = from + part_.value_begin;
        } else {
          const auto widened = [](const Stored* source, std::int64_t width, Elem* to) {
            std::int64_t i = 0;
            for (; i + 16 <= width; i += 16) V::load(source + i).store(to + i);
            for (; i < width; ++i) to[i] = widen_element(source[i]);
            return to;
          };
          Elem* to = scratch_ + k * (padded16(part_.key) + padded16(part_.value));
          entry[k] = widened(from + part_.key_begin, part_.key, to);
          value_[k] = widened(from + part_.value_begin, part_.value, to + padded16(part_.key));
        }
      }
    });
  }
  void transpose(std::int64_t n) {
    Elem* to = scratch_ + kKeyBlock * (padded16(part_.key) + padded16(part_.value));
    make_panels<V>(entry, n, part_.key, to);
    panels = value_panels = to;
  }
  // After transpose: the values too, where they stand apart.
  void transpose_values(std::int64_t n) {
    if (!part_.value) return;
    Elem* to = scratch_ + kKeyBlock * (2 * padded16(part_.key) + padded16(part_.value));
    make_panels<V>(value_, n, part_.value, to);
    value_panels = to;
  }

 private:
  const Elem* value_[kKeyBlock];
  const View& cache_;
  const Rows& rows_;
  EntryPart part_;
  Elem* scratch_;
};

// dot16 of `Heads` queries with the sixteen keys of a panel: out[h]'s lane k. First and Step name the part of the tree.
// Width: that of the entries where it is known to the compiler, else 0.
template <class V, int Heads, int Width, int First, int Step>
[[gnu::always_inline]] inline void panel_tree(const typename V::Elem* q, std::int64_t q_step, const typename V::Elem* panel, std::int64_t width,
                                              V (&out)[Heads]) {
  if constexpr (Step == 16) {
    for (int h = 0; h < Heads; ++h) out[h] = V::zero();
    for (std::int64_t i = First; i < (Width ? Width : width); i += 16) {
      const V key = V::load(panel + i * 16);
      for (int h = 0; h < Heads; ++h) out[h] = fma(V::set1(q[h * q_step + i]), key, out[h]);
    }
  } else {
    V right[Heads];
    panel_tree<V, Heads, Width, First, 2 * Step>(q, q_step, panel, width, out);
    panel_tree<V, Heads, Width, First + Step, 2 * Step>(q, q_step, panel, width, right);
    for (int h = 0; h < Heads; ++h) out[h] = out[h] + right[h];
  }
}
template <class V, int Heads, int Width>
[[gnu::noinline]] void panel_dots_of(const typename V::Elem* q, std::int64_t q_step, const typename V::Elem* panel, std::int64_t width, V (&out)[Heads]) {
  panel_tree<V, Heads, Width, 0, 1>(q, q_step, panel, width, out);
}
template <class V, int Heads>
inline void panel_dots(const typename V::Elem* q, std::int64_t q_step, const typename V::Elem* panel, std::int64_t width, V (&out)[Heads]) {
  if (width == 16) return panel_dots_of<V, Heads, 16>(q, q_step, panel, width, out);
  if constexpr (std::is_same_v<typename V::Elem, float> && V::kRows >= 6) {  // common sizes of a head, unrolled
    if (width == 64) return panel_dots_of<V, Heads, 64>(q, q_step, panel, width, out);
    if (width == 128) return panel_dots_of<V, Heads, 128>(q, q_step, panel, width, out);
  }
  panel_dots_of<V, Heads, 0>(q, q_step, panel, width, out);
}

// dot16 of `Heads` queries with one entry.
template <class V, int Heads>
inline void direct_dots(const typename V::Elem* q, std::int64_t q_step, const typename V::Elem* entry, std::int64_t width, const V& tail_lanes,
                        typename V::Elem (&out)[Heads]) {
  V sum[Heads];
  for (int h = 0; h < Heads; ++h) sum[h] = V::zero();
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const V key = V::load(entry + i);
    for (int h = 0; h < Heads; ++h) sum[h] = fma(V::load(q + h * q_step + i), key, sum[h]);
  }
  if (i < width) {  // lanes beyond the end keep their chain
    const int rest = static_cast<int>(width - i);
    const V key = V::load_partial(entry + i, rest);
    for (int h = 0; h < Heads; ++h) sum[h] = select_gt(tail_lanes, V::zero(), fma(V::load_partial(q + h * q_step + i, rest), key, sum[h]), sum[h]);
  }
  for (int h = 0; h < Heads; ++h) out[h] = reduce_tree(sum[h]);
}

// 1 in lanes below n, 0 elsewhere: for select_gt(mask, zero, ...).
template <class V>
inline V lane_mask(std::int64_t n) {
  const V one = V::set1(1.0f);
  typename V::Elem lanes[16];
  V::zero().store(lanes);
  one.store_partial(lanes, static_cast<int>(n < 16 ? n : 16));
  return V::load(lanes);
}

// out[h * out_step + k] = dot16(q + h * q_step, entry k) [* scale], for n keys. `width` may be less than the entries'
// (the value part). With panels, whole vectors are written: out_step is a multiple of 16 not below n.
template <class V, bool Scaled>
void dot_products(const typename V::Elem* q, std::int64_t q_step, std::int64_t heads, const typename V::Elem* const* entry, const typename V::Elem* panels,
                  std::int64_t entry_width, std::int64_t width, std::int64_t n, typename V::Elem scale, typename V::Elem* out, std::int64_t out_step) {
  using Elem = typename V::Elem;
  constexpr int kTile = kHeadTile<V>;
  const auto scaled = [&](Elem x) {
    if constexpr (Scaled) return x * scale;
    else return x;
  };
  const auto panel_group = [&](auto count, std::int64_t h) {
    constexpr int kHeads = decltype(count)::value;
    for (std::int64_t k = 0; k < n; k += 16) {
      V sum[kHeads];
      panel_dots<V, kHeads>(q + h * q_step, q_step, panels + k * entry_width, width, sum);
      for (int j = 0; j < kHeads; ++j) {
        if constexpr (Scaled) sum[j] = sum[j] * V::set1(scale);
        sum[j].store(out + (h + j) * out_step + k);
      }
    }
  };
  if (panels) {
    for_head_tiles<kPanelTile<V>>(heads, panel_group);
    return;
  }
  const auto group = [&](auto count, std::int64_t h) {
    constexpr int kHeads = decltype(count)::value;
    const V tail_lanes = lane_mask<V>(width % 16);
    for (std::int64_t k = 0; k < n; ++k) {
      Elem sum[kHeads];
      direct_dots<V, kHeads>(q + h * q_step, q_step, entry[k], width, tail_lanes, sum);
      for (int j = 0; j < kHeads; ++j) out[(h + j) * out_step + k] = scaled(sum[j]);
    }
  };
  for_head_tiles<kTile>(heads, group);
}

// One tile of weighted_sums: heads [head, head + Heads), `Columns` vectors from `column` on (Partial: one vector of
// `lanes`).
template <class V, int Heads, int Columns, bool Partial, class Begin, class Finish>
inline void weighted_tile(const typename V::Elem* weight, std::int64_t weight_step, const typename V::Elem* const* entry, std::int64_t n, std::int64_t head,
                          std::int64_t column, int lanes, const Begin& begin, const Finish& finish) {
  V sum[Heads][Columns];
  for (int h = 0; h < Heads; ++h)
    for (int c = 0; c < Columns; ++c) sum[h][c] = begin(head + h, column + 16 * c, lanes);
  for (std::int64_t k = 0; k < n; ++k) {
    const typename V::Elem* value = entry[k] + column;
    V x[Columns];
    for (int c = 0; c < Columns; ++c) {
      if constexpr (Partial) x[c] = V::load_partial(value + 16 * c, lanes);
      else x[c] = V::load(value + 16 * c);
    }
    for (int h = 0; h < Heads; ++h) {
      const V w = V::set1(weight[(head + h) * weight_step + k]);
      for (int c = 0; c < Columns; ++c) sum[h][c] = fma(w, x[c], sum[h][c]);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int c = 0; c < Columns; ++c) finish(sum[h][c], head + h, column + 16 * c, lanes);
}

// For every head and each of the first `columns` columns: sum = begin(head, column, lanes); over the keys ascending
// sum = fma(weight[head * weight_step + key], entry[key][column], sum); finish(sum, head, column, lanes).
template <class V, class Begin, class Finish>
void weighted_sums(const typename V::Elem* weight, std::int64_t weight_step, std::int64_t heads, const typename V::Elem* const* entry, std::int64_t n,
                   std::int64_t columns, const Begin& begin, const Finish& finish) {
  constexpr int kTile = kHeadTile<V>, kWide = kColumnTile<V>;
  const auto group = [&](auto count, std::int64_t h) {
    constexpr int kHeads = decltype(count)::value;
    std::int64_t c = 0;
    for (; c + 16 * kWide <= columns; c += 16 * kWide) weighted_tile<V, kHeads, kWide, false>(weight, weight_step, entry, n, h, c, 16, begin, finish);
    if constexpr (kWide > 2)
      for (; c + 32 <= columns; c += 32) weighted_tile<V, kHeads, 2, false>(weight, weight_step, entry, n, h, c, 16, begin, finish);
    for (; c + 16 <= columns; c += 16) weighted_tile<V, kHeads, 1, false>(weight, weight_step, entry, n, h, c, 16, begin, finish);
    if (c < columns) weighted_tile<V, kHeads, 1, true>(weight, weight_step, entry, n, h, c, lanes_left(columns, c), begin, finish);
  };
  for_head_tiles<kTile>(heads, group);
}

// x[h * step + k] = x[h * step + k] - minus[h], k < n (whole vectors where step allows).
template <class V>
inline void subtract_by_head(typename V::Elem* x, std::int64_t heads, std::int64_t step, std::int64_t n, const typename V::Elem* minus) {
  for (std::int64_t h = 0; h < heads; ++h, x += step) {
    if (step % 16 == 0) {
      const V m = V::set1(minus[h]);
      for (std::int64_t k = 0; k < step; k += 16) (V::load(x + k) - m).store(x + k);
    } else {
      for (std::int64_t k = 0; k < n; ++k) x[k] = x[k] - minus[h];
    }
  }
}
// x = e^x for `count` elements; up to 15 elements behind them are overwritten.
template <class V>
inline void exp_all(typename V::Elem* x, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 16) exp(V::load(x + i)).store(x + i);
}

// The distance from one head's scores to the next: few keys stand packed (fewer vectors in exp), others padded to 16.
static inline std::int64_t score_step(std::int64_t n) { return n < kPanelKeys ? n : padded16(n); }

// Rows a work item takes, so that every thread has several items.
static inline std::int64_t rows_per_item(std::int64_t rows, int threads, std::int64_t most) { return std::clamp<std::int64_t>(rows / (4 * threads), 1, most); }

}  // namespace lockstep
