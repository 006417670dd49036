// The products behind linear.h and head.h, and the gradient of a weight; order as written in linear.h. Included by their .inl.
#pragma once

#include "kernels/linear/long_product.h"
#include "kernels/linear/product_tiles.h"

namespace lockstep {

// Rows [0, rows) x panels [begin, end). Panels outer, as many as stay in the second cache, rows inner: a weight is read from
// memory once, however many rows there are.
template <class V, class W>
inline void product_block(const Product<V, W>& op, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  if (in_parts<V>(rows, op.inputs) && op.leaf_begin < op.leaf_end) return product_in_parts(op, rows, begin, end);
  std::int64_t group = kCachedWeights / std::max<std::int64_t>(1, op.inputs * 16 * static_cast<std::int64_t>(sizeof(W)));
  group = rows <= V::kRows ? end - begin : std::max<std::int64_t>(V::kPanels, group / V::kPanels * V::kPanels);
  for (; begin < end; begin += group) {
    const std::int64_t stop = std::min(end, begin + group);
    for_row_tiles<V>(rows, [&](std::int64_t row, auto tile) { product_rows<V, W, decltype(tile)::value>(op, row, begin, stop); });
  }
}

// y[t, n] for rows of x; leaves [leaf_begin, leaf_end) of the sum.
template <class V, class W>
inline void product_forward(Product<V, W> op, std::int64_t rows, int maximum_leaves, int leaf_begin, int leaf_end, std::int64_t panel_begin,
                            std::int64_t panel_end) {
  op.leaves = leaf_count(op.inputs, maximum_leaves);
  op.leaf_begin = leaf_begin;
  op.leaf_end = std::min(leaf_end, op.leaves);
  product_block(op, rows, panel_begin, panel_end);
}

// Inputs [block * 16, block * 16 + 16) of a weight as a panel of the transposed one: `panel` [outputs][16], padded with zeros.
template <class V, class W>
inline void transpose_block(typename V::Elem* panel, const W* w, std::int64_t outputs, std::int64_t inputs, std::int64_t block) {
  const int width = lanes_left(inputs, block * 16);
  std::int64_t n = 0;
  if constexpr (std::is_same_v<W, float> && std::is_same_v<typename V::Elem, float>)
    for (; width == 16 && n + 16 <= outputs; n += 16)
      for (int corner = 0; corner < 4; ++corner)
        transpose_eight(panel + (n + corner / 2 * 8) * 16 + corner % 2 * 8, 16, w + (n / 16 * inputs + block * 16 + corner % 2 * 8) * 16 + corner / 2 * 8, 16);
  for (; n < outputs; ++n) {
    const W* source = w + ((n / 16) * inputs + block * 16) * 16 + n % 16;
    for (int i = 0; i < width; ++i) panel[n * 16 + i] = widen_element(source[i * 16]);
    for (int i = width; i < 16; ++i) panel[n * 16 + i] = element<typename V::Elem>(0.0f);
  }
}

// How many panels of outputs share a read of x in the gradient of a weight, where that many are left.
template <class V>
constexpr int kWeightPanels = V::kRows >= 8 ? 2 : 1;
// Inputs that a work item of such a gradient takes: as much of x as stays in the second cache, in the order that its tiles read it.
inline constexpr std::int64_t kWeightInputs = 144;

// Operands of the gradient of one weight, and what is to happen to it (LinearBackwardWeight of linear.h).
template <class V>
struct WeightGradient {
  typename V::Elem* gradient;
  typename AccumulatorVec<V>::Storage* bins;  // or none
  bool finish;
  const typename V::Elem* dy;
  std::int64_t dy_stride;
  const typename V::Elem* x;
  std::int64_t x_stride, row_begin, row_end, outputs, inputs;
};

// Deposits P * KK sums. Apart from the loop that makes them: its sums want every register, and the constants of the cuts would take some.
template <class V, int KK, int P>
[[gnu::noinline]] void deposit_tile(typename AccumulatorVec<V>::Storage* totals, std::int64_t apart, const V* sums) {
  using Accumulator = AccumulatorVec<V>;
  for (int p = 0; p < P; ++p)
    for (int i = 0; i < KK; ++i) {
      auto* at = totals + (p * apart + i) * Accumulator::kStorage;
      Accumulator total = Accumulator::load(at);
      total.deposit(sums[p * KK + i]);
      total.store(at);
    }
}

// A run of whole segments for P panels of outputs: dy of its rows, dense, P * 16 lanes a row (padding +0); ends[s] is one past the
// last row of its segment s. Adds to `totals` (of inputs k .. k + KK; panels `apart` inputs from each other) one deposit per segment.
// `ahead`, `ahead_step` apart, is what will be read next, a line per row.
template <class V, int KK, int P>
inline void product_weight_tile(typename AccumulatorVec<V>::Storage* totals, std::int64_t apart, const typename V::Elem* dy, const typename V::Elem* x,
                                std::int64_t x_stride, const std::int64_t* ends, int segments, const typename V::Elem* ahead, std::int64_t ahead_step) {
  std::int64_t t = 0;
  for (int s = 0; s < segments; ++s) {
    V sum[P][KK];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
      for (int i = 0; i < KK; ++i) sum[p][i] = V::zero();
    for (const std::int64_t end = ends[s]; t < end; ++t) {
      V d[P];
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) d[p] = V::load(dy + p * 16);
      __builtin_prefetch(ahead, 0, 2);
#pragma GCC unroll 16
      for (int i = 0; i < KK; ++i) {
        const V value = V::set1(x[i]);
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) sum[p][i] = fma(value, d[p], sum[p][i]);
      }
      dy += P * 16;
      x += x_stride;
      ahead += ahead_step;
    }
    V sums[P * KK];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
      for (int i = 0; i < KK; ++i) sums[p * KK + i] = sum[p][i];
    deposit_tile<V, KK, P>(totals, apart, sums);
  }
}

// f(k, std::integral_constant<int, KK>) for the tiles of `width` inputs.
template <int Wide, class F>
inline void for_weight_tiles(std::int64_t width, const F& f) {
  std::int64_t k = 0;
  for (; k + Wide <= width; k += Wide) f(k, std::integral_constant<int, Wide>());
  if constexpr (Wide > 4)
    for (; k + 4 <= width; k += 4) f(k, std::integral_constant<int, 4>());
  for (; k < width; ++k) f(k, std::integral_constant<int, 1>());
}

// The gradient of panels [panel, panel_end), P at a time, inputs [k_begin, k_end): segments of rows of dy and x, each a chain,
// deposited. segment_of(t) names the segment of row t; equal segments stand together. Rows go in blocks of whole segments. One block
// is the rule: then a tile's accumulators live in the first cache from begin to end. With several, all of the call's live in scratch.
template <class V, int P, class SegmentOf>
inline void product_weight_panels(const WeightGradient<V>& op, std::int64_t panel, std::int64_t panel_end, std::int64_t k_begin, std::int64_t k_end,
                                  const SegmentOf& segment_of) {
  using Accumulator = AccumulatorVec<V>;
  using Storage = typename Accumulator::Storage;
  using Elem = typename V::Elem;
  constexpr int kWide = V::kRows >= 8 ? (P == 1 ? 16 : 12) : 6, kSegments = 64, kLine = 64 / static_cast<int>(sizeof(float));
  constexpr std::int64_t kBlockRows = 1024, kRowsAhead = 8;  // to be fetched: rows lie apart, where the processor sees no stream
  const std::int64_t width = k_end - k_begin, groups = (panel_end - panel) / P, of_group = P * width * Accumulator::kStorage;
  const auto begin_total = [&](Storage* total, std::int64_t at) {
    (op.bins ? Accumulator::load(op.bins + at * Accumulator::kStorage) : Accumulator::zero()).store(total);
  };
  const auto end_total = [&](Storage* total, std::int64_t at) {
    Accumulator sum = Accumulator::load(total);
    sum.normalise();
    if (op.finish || !op.bins) sum.total().store(op.gradient + at * 16);
    if (op.bins) (op.finish ? Accumulator::zero() : sum).store(op.bins + at * Accumulator::kStorage);
  };
  // f(its accumulator, its place in the weight) for P panels from `first` on, inputs [k, k + kk); panels `apart` in `totals`.
  const auto each_total = [&](Storage* totals, std::int64_t apart, std::int64_t first, std::int64_t k, std::int64_t kk, const auto& f) {
    for (std::int64_t p = 0; p < P; ++p)
      for (std::int64_t i = 0; i < kk; ++i) f(totals + (p * apart + i) * Accumulator::kStorage, (first + p) * op.inputs + k + i);
  };
  Storage* totals = nullptr;  // of several blocks
  const auto each_kept = [&](const auto& f) {
    for (std::int64_t g = 0; totals && g < groups; ++g) each_total(totals + g * of_group, width, panel + g * P, k_begin, width, f);
  };
  std::int64_t begin = op.row_begin;
  int deposits = 0;
  do {
    std::int64_t ends[kSegments], end = begin;
    int segments = 0;
    while (end < op.row_end && segments < kSegments) {
      const std::int32_t segment = segment_of(end);
      std::int64_t next = end + 1;
      while (next < op.row_end && segment_of(next) == segment) ++next;
      if (segments > 0 && next - begin > kBlockRows) break;
      end = next;
      ends[segments++] = end - begin;
    }
    const bool whole = begin == op.row_begin && end == op.row_end;
    if (!whole && !totals) {
      totals = thread_scratch<Storage>(static_cast<std::size_t>(groups * of_group));
      each_kept(begin_total);
    }
    if (deposits + segments > kDepositsBeforeCarry) {
      each_kept([](Storage* total, std::int64_t) {
        Accumulator sum = Accumulator::load(total);
        sum.normalise();
        sum.store(total);
      });
      deposits = 0;
    }
    deposits += segments;
    const std::int64_t rows = end - begin;
    const Elem* x = op.x + begin * op.x_stride + k_begin;
    // Where several groups read it: the rows of each tile one after another.
    const bool packs = groups >= 2;
    Elem* strip = thread_scratch<Elem>(static_cast<std::size_t>(rows * (P * 16 + (packs ? width : 0))));
    Elem* packed = strip + rows * P * 16;
    for (std::int64_t t = 0; packs && t < rows; ++t) {
      const Elem* const later = x + std::min(t + kRowsAhead, rows - 1) * op.x_stride;
      for (std::int64_t k = 0; k < width; k += kLine) __builtin_prefetch(later + k);
      for_weight_tiles<kWide>(width,
                              [&](std::int64_t k, auto kk) { __builtin_memcpy(packed + rows * k + t * kk(), x + t * op.x_stride + k, kk() * sizeof(Elem)); });
    }
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t first = panel + g * P;
      const Elem* dy = op.dy + begin * op.dy_stride + first * 16;
      for (std::int64_t t = 0; t < rows; ++t) {
        const Elem* const later = dy + std::min(t + kRowsAhead, rows - 1) * op.dy_stride;
        for (int p = 0; p < P; ++p) {
          __builtin_prefetch(later + p * 16);
          V::load_partial(dy + t * op.dy_stride + p * 16, lanes_left(op.outputs, (first + p) * 16)).store(strip + (t * P + p) * 16);
        }
      }
      const bool more = g + 1 < groups;
      for_weight_tiles<kWide>(width, [&](std::int64_t k, auto kk) {
        constexpr int kInputs = decltype(kk)::value;
        Storage own[P * kInputs * Accumulator::kStorage];
        Storage* to = whole ? own : totals + g * of_group + k * Accumulator::kStorage;
        const std::int64_t apart = whole ? kInputs : width, line = k / kWide;  // of the next group's dy
        const bool fetches = more && line < P * 16 / kLine;
        if (whole) each_total(own, kInputs, first, k_begin + k, kInputs, begin_total);
        product_weight_tile<V, kInputs, P>(to, apart, strip, packs ? packed + rows * k : x + k, packs ? kInputs : op.x_stride, ends, segments,
                                           fetches ? dy + P * 16 + line * kLine : strip, fetches ? op.dy_stride : 0);
        if (whole) each_total(own, kInputs, first, k_begin + k, kInputs, end_total);
      });
    }
    begin = end;
  } while (begin < op.row_end);
  each_kept(end_total);
}

// The same for any panels: kWeightPanels at a time and what is left singly.
template <class V, class SegmentOf>
inline void product_weight(const WeightGradient<V>& op, std::int64_t panel, std::int64_t panel_end, std::int64_t k_begin, std::int64_t k_end,
                           const SegmentOf& segment_of) {
  constexpr int kPanels = kWeightPanels<V>;
  constexpr std::int64_t kMost = 16 * kPanels;  // accumulators of more, where rows come in several blocks, would fill the caches
  const std::int64_t grouped = panel + (panel_end - panel) / kPanels * kPanels;
  for (; panel < grouped; panel += kMost) product_weight_panels<V, kPanels>(op, panel, std::min(grouped, panel + kMost), k_begin, k_end, segment_of);
  if constexpr (kPanels > 1)
    if (grouped < panel_end) product_weight_panels<V, 1>(op, grouped, panel_end, k_begin, k_end, segment_of);
}

// Copies rows rounded to bf16 (study profiles) to `out`, dense.
template <class V>
inline void round_rows(typename V::Elem* out, const typename V::Elem* x, std::int64_t stride, std::int64_t rows, std::int64_t n) {
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t i = 0; i < n; ++i) out[t * n + i] = widen_element(store_bf16<typename V::Half>(x[t * stride + i]));
}

}  // namespace lockstep
