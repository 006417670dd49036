// Reads the paged cache for attention kernels: a block of up to 64 entries, their dot products with the queries
// of several heads, and weighted sums of them. Templates over V; included by the .inl files after the instruction set's
// pragma. Every product q.k is dot16 (numerics/form.h), computed in one of two ways that give the same expression: directly, or
// sixteen keys per vector over a transposed panel, where lane chains become vector chains and the tree adds whole
// vectors. A weighted sum is, per column, one ascending fma chain over the keys.
#pragma once
#include "kernels/cache/cache.h"
#include "kernels/cache/pages.h"

namespace lockstep {

// Register tiles: heads x column vectors. They change speed only.
template <class V>
inline constexpr int kHeadTile = V::kRows >= 12  ? 4
                                 : V::kRows >= 6 ? 6
                                                 : 2;
template <class V>
inline constexpr int kPanelTile =
    V::kRows >= 6 ? 4 : 1;  // queries in the transposed form, each with up to 4 panels where registers are many: chains enough to hide an fma
template <class V>
inline constexpr int kColumnTile = V::kRows >= 12 ? 4 : 2;

inline constexpr std::int64_t kEntriesAhead = 8;

// From this many keys on, the transposed form of dot16 pays.
inline constexpr std::int64_t kPanelKeys = 8;

// f(size, h) for all heads in tiles of at most `Most`, as few of them as there can be; their sizes differ by at most one.
template <int Most, class F>
inline void for_head_tiles(std::int64_t heads, const F& f) {
  for (std::int64_t h = 0; h < heads;) {
    const std::int64_t left = heads - h, tiles = (left + Most - 1) / Most, size = (left + tiles - 1) / tiles;
    [&]<int... sizes>(std::integer_sequence<int, sizes...>) { (void)((size == sizes + 1 && (f(std::integral_constant<int, sizes + 1>(), h), true)) || ...); }
    (std::make_integer_sequence<int, Most>());
    h += size;
  }
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
    std::int64_t i = 0;
    if constexpr (std::is_same_v<typename V::Elem, float>) {
      alignas(64) float rows[8 * 8];  // transpose_eight wants them one stride apart
      for (; i + 8 <= width; i += 8, panels += 8 * 16)
        for (int k = 0; k < 16; k += 8) {
          for (int j = 0; j < 8; ++j) __builtin_memcpy(rows + j * 8, lane[k + j] + i, 8 * sizeof(float));
          transpose_eight(panels + k, 16, rows, 8);
        }
    }
    for (; i < width; ++i, panels += 16)
      for (int k = 0; k < 16; ++k) panels[k] = lane[k][i];
  }
}

// Where the entry of a position stands. pages: those of its sequence; size: positions a page; stride: elements from one entry to the next.
template <class Stored>
static inline const Stored* entry_at(const Stored* cache, std::int64_t stride, const std::int32_t* pages, std::uint32_t size, std::int64_t position) {
  const auto p = static_cast<std::uint32_t>(position);  // 32 bits: pages are divided by faster
  return cache + (static_cast<std::int64_t>(pages[p / size]) * size + p % size) * stride;
}

// What a kernel reads of an entry: the key's columns and, where values stand apart, the value's.
struct EntryPart {
  std::int64_t key_begin = 0, key = 0;
  std::int64_t value_begin = 0, value = 0;  // value 0: none, or the first columns of the key
};

// For weighted_sums that fetch nothing.
template <class V>
struct NothingAhead {
  void take(std::int64_t) {}
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
    const std::int32_t* pages = pages_of(rows_, sequence);
    const auto size = static_cast<std::uint32_t>(rows_.page_size);
    with_stored<V>(cache_, [&](auto* base) {
      using Stored = std::remove_pointer_t<decltype(base)>;
      in_cache_ = std::is_same_v<Stored, Elem>;
      const auto begin_of = [&](std::int64_t k) -> const Stored* {
        return entry_at<Stored>(base, cache_.stride, pages, size, positions ? positions[k] : first + k);
      };
      // Entries lie apart, where the processor sees no stream: all lines of a block are asked for before the first is used.
      const auto fetch = [](const Stored* from, std::int64_t width) {
        for (std::int64_t i = 0; i < width; i += 64 / static_cast<std::int64_t>(sizeof(Stored))) __builtin_prefetch(from + i);
      };
      for (std::int64_t k = 0; k < n; ++k) {
        const Stored* const from = begin_of(k);
        if constexpr (std::is_same_v<Stored, Elem>) {
          entry[k] = from + part_.key_begin;
          value_[k] = from + part_.value_begin;
          fetch(entry[k], part_.key);
          fetch(value_[k], part_.value);
        } else {
          const Stored* const later = begin_of(std::min(k + kEntriesAhead, n - 1));
          fetch(later + part_.key_begin, part_.key);
          fetch(later + part_.value_begin, part_.value);
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
  // Copies values that stand apart, and with `keys` their keys, to one place, where many rows read them: in the cache they may lie whole pages apart, in
  // the same sets of the first cache. After transpose.
  template <bool keys>
  void gather(std::int64_t n) {
    if (!part_.value || !in_cache_) return;
    copy(value_, part_.value, scratch_, n);
    if constexpr (keys) copy(entry, part_.key, scratch_ + kKeyBlock * padded16(part_.value), n);
  }
  // After transpose: the values too, where they stand apart.
  void transpose_values(std::int64_t n) {
    if (!part_.value) return;
    Elem* to = scratch_ + kKeyBlock * (2 * padded16(part_.key) + padded16(part_.value));
    make_panels<V>(value_, n, part_.value, to);
    value_panels = to;
  }

 private:
  static void copy(const Elem** entries, std::int64_t width, Elem* to, std::int64_t n) {
    for (std::int64_t k = 0; k < n; ++k, to += padded16(width)) {
      std::int64_t i = 0;
      for (; i + 16 <= width; i += 16) V::load(entries[k] + i).store(to + i);
      for (; i < width; ++i) to[i] = entries[k][i];
      entries[k] = to;
    }
  }
  const Elem* value_[kKeyBlock];
  bool in_cache_ = false;  // what was read stands in the cache; else widened in the scratch
  const View& cache_;
  const Rows& rows_;
  EntryPart part_;
  Elem* scratch_;
};

// dot16 of queries with the sixteen keys of each of `Panels` panels, which stand panel_step apart: out[c][p]'s lane k.
template <class V, int Chains, int Panels>
struct PanelDots {
  using Elem = typename V::Elem;
  const Elem* const (&q)[Chains];
  const Elem* panels;
  std::int64_t panel_step, width;

  // The chain of lane `first`. Width: that of the entries where it is known to the compiler, else 0.
  template <int Width>
  [[gnu::always_inline]] void lane(int first, V (&out)[Chains][Panels]) const {
    for (int c = 0; c < Chains; ++c)
      for (int p = 0; p < Panels; ++p) out[c][p] = V::zero();
    const auto add = [&](std::int64_t i) [[gnu::always_inline]] {
      V key[Panels];
      for (int p = 0; p < Panels; ++p) key[p] = V::load(panels + p * panel_step + (first + i) * 16);
      for (int c = 0; c < Chains; ++c) {
        const V value = V::set1(q[c][first + i]);
        for (int p = 0; p < Panels; ++p) out[c][p] = fma(value, key[p], out[c][p]);
      }
    };
    if constexpr (Width > 0 || V::kRows < 12) {
#pragma GCC unroll 8
      for (std::int64_t i = 0; i < (Width ? Width : width - first); i += 16) add(i);
    } else {  // of several vectors a query eight times the code were more than the instruction cache holds
      for (std::int64_t i = 0; i < width - first; i += 16) add(i);
    }
  }
  // The tree over lanes: i and i + 8, then + 4, + 2, + 1. Where registers are few, sums of two lanes wait in memory that is named here: what
  // a compiler spilled of the form in registers took longer.
  template <int Width>
  [[gnu::always_inline]] void tree_in_memory(V (&out)[Chains][Panels]) const {
    alignas(64) Elem pairs[Chains][Panels][8][16];
    for (int first = 0; first < 8; ++first) {
      V sum[Chains][Panels], right[Chains][Panels];
      lane<Width>(first, sum);
      for (int c = 0; c < Chains; ++c)
        for (int p = 0; p < Panels; ++p) sum[c][p].store(pairs[c][p][first]);
      lane<Width>(first + 8, right);
      for (int c = 0; c < Chains; ++c)
        for (int p = 0; p < Panels; ++p) (V::load(pairs[c][p][first]) + right[c][p]).store(pairs[c][p][first]);
    }
    for (int c = 0; c < Chains; ++c)
      for (int p = 0; p < Panels; ++p) {
        V four[4];
        for (int i = 0; i < 4; ++i) four[i] = V::load(pairs[c][p][i]) + V::load(pairs[c][p][i + 4]);
        out[c][p] = (four[0] + four[2]) + (four[1] + four[3]);
      }
  }
  // The same in registers. Pairs come in the order in which what waits for its right neighbour is least: what there is of
  // one, two and four pairs is the binary form of the pairs done.
  template <int Width>
  [[gnu::always_inline]] void tree(V (&out)[Chains][Panels]) const {
    V waiting[3][Chains][Panels];
    if constexpr (Chains * Panels < 8) {  // few chains: the next pairs' hide them where the compiler sees all
      [&]<int... pairs>(std::integer_sequence<int, pairs...>) { (add_pair<Width>(pairs, waiting, out), ...); }
      (std::make_integer_sequence<int, 8>());
    } else {
      for (int pair = 0; pair < 8; ++pair) add_pair<Width>(pair, waiting, out);
    }
  }

 private:
  template <int Width>
  [[gnu::always_inline]] void add_pair(int pair, V (&waiting)[3][Chains][Panels], V (&out)[Chains][Panels]) const {
    const int first = (pair & 1) << 2 | (pair & 2) | pair >> 2;
    V sum[Chains][Panels], right[Chains][Panels];
    lane<Width>(first, sum);
    lane<Width>(first + 8, right);
    for (int c = 0; c < Chains; ++c)
      for (int p = 0; p < Panels; ++p) sum[c][p] = sum[c][p] + right[c][p];
    int level = 0;
    for (; pair >> level & 1; ++level)
      for (int c = 0; c < Chains; ++c)
        for (int p = 0; p < Panels; ++p) sum[c][p] = waiting[level][c][p] + sum[c][p];
    auto& to = pair == 7 ? out : waiting[level];
    for (int c = 0; c < Chains; ++c)
      for (int p = 0; p < Panels; ++p) to[c][p] = sum[c][p];
  }
};
template <class V, int Chains, int Panels, int Width>
[[gnu::noinline]] void panel_dots_of(const typename V::Elem* const (&q)[Chains], const typename V::Elem* panels, std::int64_t panel_step, std::int64_t width,
                                     V (&out)[Chains][Panels]) {
  const PanelDots<V, Chains, Panels> dots{q, panels, panel_step, width};
  if constexpr (V::kRows >= 12) dots.template tree<Width>(out);
  else dots.template tree_in_memory<Width>(out);
}
template <class V, int Chains, int Panels>
inline void panel_dots(const typename V::Elem* const (&q)[Chains], const typename V::Elem* panels, std::int64_t panel_step, std::int64_t width,
                       V (&out)[Chains][Panels]) {
  if (width == 16) return panel_dots_of<V, Chains, Panels, 16>(q, panels, panel_step, width, out);
  if constexpr (std::is_same_v<typename V::Elem, float> && V::kRows >= 6) {  // common sizes of a head, unrolled
    if (width == 64) return panel_dots_of<V, Chains, Panels, 64>(q, panels, panel_step, width, out);
    if (width == 128) return panel_dots_of<V, Chains, Panels, 128>(q, panels, panel_step, width, out);
  }
  panel_dots_of<V, Chains, Panels, 0>(q, panels, panel_step, width, out);
}

// out[c * out_step + k] = dot16(chain(c), entry k) [* scale] for n keys in panels: whole vectors are written. chain(c): a query.
template <class V, bool Scaled, class Chain>
inline void panel_products(std::int64_t chains, const Chain& chain, const typename V::Elem* panels, std::int64_t entry_width, std::int64_t width,
                           std::int64_t n, typename V::Elem scale, typename V::Elem* out, std::int64_t out_step) {
  using Elem = typename V::Elem;
  for_head_tiles<kPanelTile<V>>(chains, [&](auto count, std::int64_t first) {
    constexpr int kChains = decltype(count)::value;
    const Elem* q[kChains];
    for (int c = 0; c < kChains; ++c) q[c] = chain(first + c);
    std::int64_t k = 0;
    const auto take = [&](auto at_once) {
      constexpr int kPanels = decltype(at_once)::value;
      for (; k + 16 * (kPanels - 1) < n; k += 16 * kPanels) {
        V sum[kChains][kPanels];
        panel_dots<V, kChains, kPanels>(q, panels + k * entry_width, 16 * entry_width, width, sum);
        for (int c = 0; c < kChains; ++c)
          for (int p = 0; p < kPanels; ++p) {
            if constexpr (Scaled) sum[c][p] = sum[c][p] * V::set1(scale);
            sum[c][p].store(out + (first + c) * out_step + k + 16 * p);
          }
      }
    };
    if constexpr (V::kRows >= 12) {
      take(std::integral_constant<int, 4>());
      take(std::integral_constant<int, 2>());
    }
    take(std::integral_constant<int, 1>());
  });
}

// dot16 of `Heads` queries with one entry.
template <class V, int Heads>
[[gnu::always_inline]] inline void direct_dots(const typename V::Elem* q, std::int64_t q_step, const typename V::Elem* entry, std::int64_t width,
                                               const V& tail_lanes, typename V::Elem (&out)[Heads]) {
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
  if (panels)
    return panel_products<V, Scaled>(
        heads, [&](std::int64_t h) { return q + h * q_step; }, panels, entry_width, width, n, scale, out, out_step);
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

// One vector of columns. Partial: its first `lanes`.
template <class V, bool Partial, class Stored>
inline V load_columns(const Stored* from, int lanes) {
  if constexpr (Partial) return V::load_partial(from, lanes);
  else return V::load(from);
}

// The first `lanes` of a vector, +0 behind them; a whole one is loaded whole.
template <class V>
inline V load_lanes(const typename V::Elem* from, int lanes) {
  return lanes >= 16 ? V::load(from) : V::load_partial(from, lanes);
}

// The first `lanes` of a vector. A whole one is stored whole: a masked store takes many times as long on AMD's processors.
template <class V>
inline void store_lanes(const V& x, typename V::Elem* to, int lanes) {
  if (lanes >= 16) x.store(to);
  else x.store_partial(to, lanes);
}

// One tile of weighted_sums: heads [head, head + Heads), `Columns` vectors from `column` on (Partial: one vector of
// `lanes`).
template <class V, int Heads, int Columns, bool Partial, class Stored, class Ahead, class Begin, class Finish>
inline void weighted_tile(const typename V::Elem* weight, std::int64_t weight_step, const Stored* const* entry, std::int64_t n, std::int64_t head,
                          std::int64_t column, int lanes, Ahead& ahead, const Begin& begin, const Finish& finish) {
  V sum[Heads][Columns];
#pragma GCC unroll 8
  for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) sum[h][c] = begin(head + h, column + 16 * c, lanes);
  for (std::int64_t k = 0; k < n; ++k) {
    if (k % 8 == 0) ahead.take(8 * 16 * Columns * static_cast<std::int64_t>(sizeof(Stored)) / 64);  // as many lines as eight keys have here
    const Stored* value = entry[k] + column;
    V x[Columns];
    for (int c = 0; c < Columns; ++c) x[c] = load_columns<V, Partial>(value + 16 * c, lanes);
    for (int h = 0; h < Heads; ++h) {
      const V w = V::set1(weight[(head + h) * weight_step + k]);
      for (int c = 0; c < Columns; ++c) sum[h][c] = fma(w, x[c], sum[h][c]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) finish(sum[h][c], head + h, column + 16 * c, Partial ? lanes : 16);
}

// For every head (or head of a row) and each of the first `columns` columns: sum = begin(head, column, lanes); over the keys ascending
// sum = fma(weight[head * weight_step + key], entry[key][column], sum); finish(sum, head, column, lanes). Now and then ahead.take(n) is called, which fetches n
// cache lines of what is read later.
template <class V, class Stored, class Begin, class Finish, class Ahead = NothingAhead<V>>
void weighted_sums(const typename V::Elem* weight, std::int64_t weight_step, std::int64_t heads, const Stored* const* entry, std::int64_t n,
                   std::int64_t columns, const Begin& begin, const Finish& finish, Ahead&& ahead = {}) {
  const auto sums_of = [&](auto count, std::int64_t h, auto& next) {
    constexpr int kHeads = decltype(count)::value, kWide = V::kRows < 12 && kHeads > 2 ? 1 : kColumnTile<V>;
    std::int64_t c = 0;
    for (; c + 16 * kWide <= columns; c += 16 * kWide) weighted_tile<V, kHeads, kWide, false>(weight, weight_step, entry, n, h, c, 16, next, begin, finish);
    if constexpr (kWide > 2)
      for (; c + 32 <= columns; c += 32) weighted_tile<V, kHeads, 2, false>(weight, weight_step, entry, n, h, c, 16, next, begin, finish);
    for (; c + 16 <= columns; c += 16) weighted_tile<V, kHeads, 1, false>(weight, weight_step, entry, n, h, c, 16, next, begin, finish);
    if (c < columns) weighted_tile<V, kHeads, 1, true>(weight, weight_step, entry, n, h, c, lanes_left(columns, c), next, begin, finish);
  };
  NothingAhead<V> nothing;
  const auto group = [&](auto count, std::int64_t h) {
    if (h == 0) sums_of(count, h, ahead);
    else sums_of(count, h, nothing);
  };
  for_head_tiles<kHeadTile<V>>(heads, group);
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

// The distance from one head's scores to the next: few keys stand close together (fewer vectors in exp), others padded to 16.
static inline std::int64_t score_step(std::int64_t n) { return n < kPanelKeys ? n : padded16(n); }

// Rows a work item takes, so that every thread has several items.
static inline std::int64_t rows_per_item(std::int64_t rows, int threads, std::int64_t most) { return std::clamp<std::int64_t>(rows / (4 * threads), 1, most); }

}  // namespace lockstep
