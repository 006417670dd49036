// The products behind linear.h and head.h, and the gradient of a weight; order as written in linear.h. Included by their .inl.
#pragma once

#include "kernels/linear/long_product.h"
#include "kernels/linear/product_tiles.h"
#include "numerics/small_deposits.h"

namespace lockstep {

// Rows [0, rows) x panels [begin, end). Panels outer, as many as stay in the second cache, rows inner: a weight is read from
// memory once, however many rows there are.
template <class V, class W>
inline void product_block(const Product<V, W>& op, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  if (in_parts<V>(rows, op.inputs) && op.leaf_begin < op.leaf_end) return product_in_parts(op, rows, begin, end);
  std::int64_t group = kCachedWeights / std::max<std::int64_t>(1, op.inputs * 16 * static_cast<std::int64_t>(sizeof(W)));
  group = rows <= V::kRows ? end - begin : std::max<std::int64_t>(V::kPanels, group / V::kPanels * V::kPanels);
  if (const std::int64_t groups = (end - begin + group - 1) / std::max<std::int64_t>(1, group); groups > 1)  // even ones: each reads x anew
    group = ((end - begin + groups - 1) / groups + V::kPanels - 1) / V::kPanels * V::kPanels;
  for (; begin < end; begin += group) {
    const std::int64_t stop = std::min(end, begin + group);
    ReadAhead ahead = weights_ahead<V>(op.w + (stop < end ? stop : begin) * op.inputs * 16, stop < end ? rows : 0);
    for_row_tiles<V>(rows, [&](std::int64_t row, auto tile) { product_rows<V, W, decltype(tile)::value>(op, row, begin, stop, ahead); });
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
// Rows of a block, where they are whole segments.
inline constexpr std::int64_t kWeightRows = 1024;

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
  const typename V::Elem* packed = nullptr;  // x as pack_weight_rows lays it out, of rows from row 0 on, or none
};

// Some of the rows of such a gradient: whole segments.
struct WeightBlock {
  static constexpr int kSegments = kMostSmallDeposits;
  std::int64_t begin, end, ends[kSegments];  // ends[s]: one past the last row of its segment s, counted from `begin`
  int segments;
};
template <class SegmentOf>
inline WeightBlock weight_block(std::int64_t begin, std::int64_t row_end, const SegmentOf& segment_of) {
  WeightBlock block{begin, begin, {}, 0};
  while (block.end < row_end && block.segments < WeightBlock::kSegments) {
    const std::int32_t segment = segment_of(block.end);
    std::int64_t next = block.end + 1;
    while (next < row_end && segment_of(next) == segment) ++next;
    if (block.segments > 0 && next - begin > kWeightRows) break;
    block.end = next;
    block.ends[block.segments++] = next - begin;
  }
  return block;
}

// For every kRowsALine rows of a tile one cache line of the next data is prefetched.
inline constexpr std::int64_t kRowsALine = 8;

// Some rows of one segment for P panels of outputs and KK inputs: its sums' chains go on (or begin, from +0) and are left in `sums`. dy is dense, P * 16
// lanes a row (padding +0). `ahead`, `ahead_step` apart, is what will be read next, P lines for every kRowsALine rows: more at once would wait in line.
template <class V, int KK, int P>
inline void product_weight_tile(typename V::Elem* sums, bool goes_on, const typename V::Elem* dy, const typename V::Elem* x, std::int64_t x_stride,
                                std::int64_t rows, const typename V::Elem* ahead, std::int64_t ahead_step) {
  V sum[P][KK];
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
    for (int i = 0; i < KK; ++i) sum[p][i] = goes_on ? V::load(sums + (p * KK + i) * 16) : V::zero();
  const auto add_row = [&]() __attribute__((always_inline)) {
    V d[P];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) d[p] = V::load(dy + p * 16);
#pragma GCC unroll 16
    for (int i = 0; i < KK; ++i) {
      const V value = V::set1(x[i]);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) sum[p][i] = fma(value, d[p], sum[p][i]);
    }
    dy += P * 16;
    x += x_stride;
  };
  for (; rows >= kRowsALine; rows -= kRowsALine) {
    for (int p = 0; p < P; ++p) __builtin_prefetch(ahead + p * 16, 0, 2);
    ahead += ahead_step;
    for (int t = 0; t < kRowsALine; ++t) add_row();
  }
  for (; rows > 0; --rows) add_row();
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
    for (int i = 0; i < KK; ++i) sum[p][i].store(sums + (p * KK + i) * 16);
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

// Inputs of a tile of P panels.
template <class V, int P>
constexpr int kTileInputs = V::kRows >= 8 ? (P == 1 ? 16 : 12) : 6;

// Copies rows [begin, end) of a block of `rows` rows, `width` inputs each: the rows of each tile of inputs one after another.
template <class V, int P>
inline void pack_weight_rows(typename V::Elem* packed, const typename V::Elem* x, std::int64_t x_stride, std::int64_t rows, std::int64_t begin,
                             std::int64_t end, std::int64_t width) {
  using Elem = typename V::Elem;
  constexpr std::int64_t kRowsAhead = 8, kLine = 64 / static_cast<std::int64_t>(sizeof(float));  // rows lie apart, where the processor sees no stream
  for (std::int64_t t = begin; t < end; ++t) {
    const Elem* const later = x + std::min(t + kRowsAhead, rows - 1) * x_stride;
    for (std::int64_t k = 0; k < width; k += kLine) __builtin_prefetch(later + k);
    for_weight_tiles<kTileInputs<V, P>>(
        width, [&](std::int64_t k, auto kk) { __builtin_memcpy(packed + rows * k + t * kk(), x + t * x_stride + k, kk() * sizeof(Elem)); });
  }
}

// The gradient of P panels, `apart`, and KK inputs from the sums of some segments, P * KK vectors each, where they are small; else false. Apart from the loops
// around it: their registers are taken.
template <class V, int KK, int P>
[[gnu::noinline]] bool deposit_small(typename V::Elem* gradient, std::int64_t apart, const typename V::Elem* sums, int segments) {
  if constexpr (!std::is_same_v<typename V::Elem, float>) return false;
  else {
    if (!all_small<V>(sums, segments * P * KK)) return false;
    const SmallDeposits<V> none;
    for (int p = 0; p < P; ++p)
      for (int i = 0; i < KK; ++i) {
        SmallDeposits<V> total = none;
        for (int s = 0; s < segments; ++s) total.deposit(V::load(sums + ((s * P + p) * KK + i) * 16));
        total.total().store(gradient + p * apart + i * 16);
      }
    return true;
  }
}

// The gradient of panels [panel, panel_end), P at a time, inputs [k_begin, k_end): segments of rows of dy and x, each a chain,
// deposited. segment_of(t) names the segment of row t; equal segments stand together. Rows go in blocks of whole segments: the sums of a block's segments
// are made first, some rows at a time that all tiles of inputs find in the first cache, and are then deposited together. One block is the rule: then no
// accumulator is ever in memory. With several, all of the call's live in scratch.
template <class V, int P, class SegmentOf>
inline void product_weight_panels(const WeightGradient<V>& op, std::int64_t panel, std::int64_t panel_end, std::int64_t k_begin, std::int64_t k_end,
                                  const SegmentOf& segment_of) {
  using Accumulator = AccumulatorVec<V>;
  using Storage = typename Accumulator::Storage;
  using Elem = typename V::Elem;
  constexpr int kWide = kTileInputs<V, P>;
  constexpr std::int64_t kRowsAtOnce = 256, kRowsAhead = 8;  // ahead: to be fetched; rows lie apart, where the processor sees no stream
  const std::int64_t width = k_end - k_begin, groups = (panel_end - panel) / P, of_group = P * width * Accumulator::kStorage;
  const auto begin_total = [&](std::int64_t at) { return op.bins ? Accumulator::load(op.bins + at * Accumulator::kStorage) : Accumulator::zero(); };
  const auto end_total = [&](Accumulator& sum, std::int64_t at) {
    sum.normalise();
    if (op.finish || !op.bins) sum.total().store(op.gradient + at * 16);
    if (op.bins) (op.finish ? Accumulator::zero() : sum).store(op.bins + at * Accumulator::kStorage);
  };
  Storage* totals = nullptr;  // of several blocks
  // f(its accumulator, its place in the weight) for each of the call's.
  const auto each_kept = [&](const auto& f) {
    for (std::int64_t g = 0; totals && g < groups; ++g)
      for (std::int64_t p = 0; p < P; ++p)
        for (std::int64_t k = 0; k < width; ++k)
          f(totals + g * of_group + (p * width + k) * Accumulator::kStorage, (panel + g * P + p) * op.inputs + k_begin + k);
  };
  std::int64_t begin = op.row_begin;
  int deposits = 0;
  do {
    const WeightBlock block = weight_block(begin, op.row_end, segment_of);
    const std::int64_t end = block.end;
    const int segments = block.segments;
    const bool whole = begin == op.row_begin && end == op.row_end;
    if (!whole && !totals) {
      totals = thread_scratch<Storage>(static_cast<std::size_t>(groups * of_group));
      each_kept([&](Storage* total, std::int64_t at) { begin_total(at).store(total); });
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
    const bool packed_before = op.packed && P == kWeightPanels<V>, packs = !packed_before && groups >= 2;  // where several groups read it
    Elem* const strip = thread_scratch<Elem>(static_cast<std::size_t>(rows * (P * 16 + (packs ? width : 0)) + segments * P * width * 16));
    Elem* const sums = strip + rows * P * 16;
    Elem* const own = sums + segments * P * width * 16;
    if (packs) pack_weight_rows<V, P>(own, x, op.x_stride, rows, 0, rows, width);
    const Elem* const packed = packed_before ? op.packed + begin * op.inputs + rows * k_begin : packs ? own : nullptr;
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
      std::int64_t t = 0;
      for (int s = 0; s < segments; ++s)
        for (const std::int64_t segment = t; t < block.ends[s];) {
          const std::int64_t now = std::min(block.ends[s] - t, kRowsAtOnce);
          for_weight_tiles<kWide>(width, [&](std::int64_t k, auto kk) {
            constexpr int kInputs = decltype(kk)::value;
            const std::int64_t share = t + k / kWide * (now / kRowsALine);  // of the next group's dy
            const bool fetches = more && share < t + now;
            product_weight_tile<V, kInputs, P>(sums + (k * segments + s * kInputs) * P * 16, t > segment, strip + t * P * 16,
                                               packed ? packed + rows * k + t * kInputs : x + t * op.x_stride + k, packed ? kInputs : op.x_stride, now,
                                               fetches ? dy + share * op.dy_stride + P * 16 : strip, fetches ? op.dy_stride : 0);
          });
          t += now;
        }
      for_weight_tiles<kWide>(width, [&](std::int64_t k, auto kk) {
        constexpr int kInputs = decltype(kk)::value, kSums = P * kInputs;
        const Elem* const of_tile = sums + k * segments * P * 16;  // kSums a segment
        if (whole && !op.bins && deposit_small<V, kInputs, P>(op.gradient + (first * op.inputs + k_begin + k) * 16, op.inputs * 16, of_tile, segments)) return;
        for (int i = 0; i < kSums; ++i) {
          const std::int64_t p = i / kInputs, input = k + i % kInputs, at = (first + p) * op.inputs + k_begin + input;
          Storage* const kept = whole ? nullptr : totals + g * of_group + (p * width + input) * Accumulator::kStorage;
          Accumulator total = whole ? begin_total(at) : Accumulator::load(kept);
          for (int s = 0; s < segments; ++s) total.deposit(V::load(of_tile + (s * kSums + i) * 16));
          if (whole) end_total(total, at);
          else total.store(kept);
        }
      });
    }
    begin = end;
  } while (begin < op.row_end);
  each_kept([&](Storage* total, std::int64_t at) {
    Accumulator sum = Accumulator::load(total);
    end_total(sum, at);
  });
}

// The same for any panels: kWeightPanels at a time and what is left singly.
template <class V, class SegmentOf>
inline void product_weight(const WeightGradient<V>& op, std::int64_t panel, std::int64_t panel_end, std::int64_t k_begin, std::int64_t k_end,
                           const SegmentOf& segment_of) {
  constexpr int kPanels = kWeightPanels<V>;
  // Accumulators of more, where rows come in several blocks, would fill the caches.
  const std::int64_t most = (op.row_end - op.row_begin > kWeightRows ? 16 : 64) * kPanels;
  const std::int64_t grouped = panel + (panel_end - panel) / kPanels * kPanels;
  for (; panel < grouped; panel += most) product_weight_panels<V, kPanels>(op, panel, std::min(grouped, panel + most), k_begin, k_end, segment_of);
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
