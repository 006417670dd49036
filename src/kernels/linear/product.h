// The register-tiled products behind linear.h and head.h; order as written in linear.h. Included by their .inl.
// A tile is R rows by P panels of 16 outputs; every output's sum is its own chain, so R and P never change a bit.
#pragma once

namespace lockstep {

// The (rows x panels) shapes used for full blocks and for what is left over.
template <class V, int R>
constexpr int panels_for_rows() {
  return R >= V::kRows ? V::kPanels : R == 1 ? (V::kRows >= 8 ? 8 : 4) : R <= 3 ? (V::kRows >= 8 ? 4 : 2) : V::kPanels;
}

// A view of the operands of one product; strides in elements.
template <class V, class W>
struct Product {
  typename V::Elem* y;
  std::int64_t y_stride;
  const typename V::Elem* x;
  std::int64_t x_stride;
  const W* w;  // packed panels of this weight
  std::int64_t inputs, outputs;
  int leaves, leaf_begin, leaf_end;
  bool accumulate = false;
  float scale = 1;  // of the finished sum, before it is added to anything
};

template <class V, class W, int R, int P>
inline void product_tile(const Product<V, W>& op, std::int64_t row, std::int64_t panel) {
  const std::int64_t leaf_size = op.inputs / op.leaves;
  const typename V::Elem* x[R];
  for (int r = 0; r < R; ++r) x[r] = op.x + (row + r) * op.x_stride;
  const W* w = op.w + panel * op.inputs * 16;
  // Finished subtrees wait here until their right neighbour is done: entry l spans 2^l leaves.
  V pending[4][R][P];
  unsigned filled = 0;
  V sum[R][P];
  for (int leaf = op.leaf_begin; leaf < op.leaf_end; ++leaf) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum[r][p] = V::zero();
    for (std::int64_t k = leaf * leaf_size; k < (leaf + 1) * leaf_size; ++k) {
      V weight[P];
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) weight[p] = V::load(w + (p * op.inputs + k) * 16);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const V value = V::set1(x[r][k]);
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) sum[r][p] = fma(value, weight[p], sum[r][p]);
      }
    }
    // The last leaf joins whatever still waits, so that every range has a sum.
    const bool last = leaf + 1 == op.leaf_end;
    int level = 0;
    for (; last ? filled != 0 : filled >> level & 1; ++level) {
      if (!(filled >> level & 1)) continue;
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p) sum[r][p] = pending[level][r][p] + sum[r][p];
      filled &= ~(1u << level);
    }
    if (!last) {
      for (int r = 0; r < R; ++r)
        for (int p = 0; p < P; ++p) pending[level][r][p] = sum[r][p];
      filled |= 1u << level;
    }
  }
  if (op.leaf_begin >= op.leaf_end)  // a share without leaves adds +0
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) sum[r][p] = V::zero();
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    typename V::Elem* y = op.y + (row + r) * op.y_stride + panel * 16;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const int lanes = lanes_left(op.outputs, (panel + p) * 16);
      if (op.scale != 1.0f) sum[r][p] = sum[r][p] * V::set1(op.scale);
      if (op.accumulate) sum[r][p] = V::load_partial(y + p * 16, lanes) + sum[r][p];
      if (lanes == 16) sum[r][p].store(y + p * 16);
      else sum[r][p].store_partial(y + p * 16, lanes);
    }
  }
}

// R rows, panels [begin, end).
template <class V, class W, int R>
inline void product_rows(const Product<V, W>& op, std::int64_t row, std::int64_t begin, std::int64_t end) {
  constexpr int kPanels = panels_for_rows<V, R>();
  std::int64_t panel = begin;
  for (; panel + kPanels <= end; panel += kPanels) product_tile<V, W, R, kPanels>(op, row, panel);
  if constexpr (kPanels > 2)
    for (; panel + 2 <= end; panel += 2) product_tile<V, W, R, 2>(op, row, panel);
  for (; panel < end; ++panel) product_tile<V, W, R, 1>(op, row, panel);
}

// Rows [0, rows) x panels [begin, end). Panels outer, as many as stay in the second cache, rows inner: a weight is read from
// memory once, however many rows there are.
template <class V, class W>
inline void product_block(const Product<V, W>& op, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kCached = 256 << 10;  // bytes of weights
  std::int64_t group = kCached / std::max<std::int64_t>(1, op.inputs * 16 * static_cast<std::int64_t>(sizeof(W)));
  group = rows <= V::kRows ? end - begin : std::max<std::int64_t>(V::kPanels, group / V::kPanels * V::kPanels);
  for (; begin < end; begin += group) {
    const std::int64_t stop = std::min(end, begin + group);
    std::int64_t row = 0;
    for (; row + V::kRows <= rows; row += V::kRows) product_rows<V, W, V::kRows>(op, row, begin, stop);
    if constexpr (V::kRows > 8)
      for (; row + 8 <= rows; row += 8) product_rows<V, W, 8>(op, row, begin, stop);
    for (; row + 4 <= rows; row += 4) product_rows<V, W, 4>(op, row, begin, stop);
    for (; row + 2 <= rows; row += 2) product_rows<V, W, 2>(op, row, begin, stop);
    for (; row < rows; ++row) product_rows<V, W, 1>(op, row, begin, stop);
  }
}

// y[t, n] for rows of x; leaves [leaf_begin, leaf_end) of the sum.
template <class V, class W>
inline void product_forward(Product<V, W> op, std::int64_t rows, int maximum_leaves, int leaf_begin, int leaf_end,
                            std::int64_t panel_begin, std::int64_t panel_end) {
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
        transpose_eight(panel + (n + corner / 2 * 8) * 16 + corner % 2 * 8, 16,
                        w + (n / 16 * inputs + block * 16 + corner % 2 * 8) * 16 + corner / 2 * 8, 16);
  for (; n < outputs; ++n) {
    const W* source = w + ((n / 16) * inputs + block * 16) * 16 + n % 16;
    for (int i = 0; i < width; ++i) panel[n * 16 + i] = widen_element(source[i * 16]);
    for (int i = width; i < 16; ++i) panel[n * 16 + i] = element<typename V::Elem>(0.0f);
  }
}

// How many panels of outputs share a read of x in the gradient of a weight, where that many are left.
template <class V>
constexpr int kWeightPanels = V::kRows >= 8 ? 2 : 1;

// A run of whole segments for P panels of outputs: dy of its rows, dense, P * 16 lanes a row (padding +0); ends[s] is one past the
// last row of its segment s. Adds to `totals` (of inputs k .. k + KK; panels `apart` inputs from each other) one deposit a segment.
template <class V, int KK, int P>
inline void product_weight_tile(typename AccumulatorVec<V>::Storage* totals, std::int64_t apart, const typename V::Elem* dy,
                                const typename V::Elem* x, std::int64_t x_stride, const std::int64_t* ends, int segments) {
  using Accumulator = AccumulatorVec<V>;
  for (int s = 0; s < segments; ++s) {
    V sum[P][KK];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
      for (int i = 0; i < KK; ++i) sum[p][i] = V::zero();
    for (std::int64_t t = s ? ends[s - 1] : 0; t < ends[s]; ++t) {
      V d[P];
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) d[p] = V::load(dy + (t * P + p) * 16);
      const typename V::Elem* x_row = x + t * x_stride;
      __builtin_prefetch(x_row + 31);  // of a tile to come: rows stand too far apart for the machine to foresee
#pragma GCC unroll 16
      for (int i = 0; i < KK; ++i) {
        const V value = V::set1(x_row[i]);
#pragma GCC unroll 2
        for (int p = 0; p < P; ++p) sum[p][i] = fma(value, d[p], sum[p][i]);
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
      for (int i = 0; i < KK; ++i) {
        auto* at = totals + (p * apart + i) * Accumulator::kStorage;
        Accumulator total = Accumulator::load(at);
        total.deposit(sum[p][i]);
        total.store(at);
      }
  }
}

// The gradient of one weight's panels [panel, panel + P), inputs [k_begin, k_end): segments of rows of dy and x, each a chain,
// deposited. segment_of(t) names the segment of row t; equal segments stand together. Rows go in blocks of whole segments whose dy
// stays in cache for all inputs.
template <class V, int P, class SegmentOf>
inline void product_weight(typename V::Elem* gradient, typename AccumulatorVec<V>::Storage* bins, bool finish,
                           const typename V::Elem* dy, std::int64_t dy_stride, const typename V::Elem* x, std::int64_t x_stride,
                           std::int64_t row_begin, std::int64_t row_end, std::int64_t outputs, std::int64_t inputs,
                           std::int64_t panel, std::int64_t k_begin, std::int64_t k_end, const SegmentOf& segment_of) {
  using Accumulator = AccumulatorVec<V>;
  using Elem = typename V::Elem;
  constexpr int kWide = V::kRows >= 8 ? (P == 1 ? 16 : 12) : 6, kSegments = 64;
  constexpr std::int64_t kBlockRows = 192;
  const std::int64_t width = k_end - k_begin;
  auto* totals = thread_scratch<typename Accumulator::Storage>(static_cast<std::size_t>(P * width * Accumulator::kStorage));
  const auto each_total = [&](const auto& f) {
    for (std::int64_t p = 0; p < P; ++p)
      for (std::int64_t k = 0; k < width; ++k) f(totals + (p * width + k) * Accumulator::kStorage, (panel + p) * inputs + k_begin + k);
  };
  each_total([&](auto* total, std::int64_t at) {
    (bins ? Accumulator::load(bins + at * Accumulator::kStorage) : Accumulator::zero()).store(total);
  });
  const auto normalise = [&](auto* total, std::int64_t) {
    Accumulator sum = Accumulator::load(total);
    sum.normalise();
    sum.store(total);
  };
  int deposits = 0;
  for (std::int64_t begin = row_begin; begin < row_end;) {
    std::int64_t ends[kSegments], end = begin;
    int segments = 0;
    while (end < row_end && segments < kSegments) {
      const std::int32_t segment = segment_of(end);
      std::int64_t next = end + 1;
      while (next < row_end && segment_of(next) == segment) ++next;
      if (segments > 0 && next - begin > kBlockRows) break;
      end = next;
      ends[segments++] = end - begin;
    }
    Elem* strip = thread_scratch<Elem>(static_cast<std::size_t>((end - begin) * P * 16));
    for (std::int64_t t = begin; t < end; ++t) {
      const Elem* row = dy + t * dy_stride + panel * 16;
      for (int p = 0; p < P; ++p) {
        __builtin_prefetch(row + p * 16 + kBlockRows * dy_stride);  // of the next block
        V::load_partial(row + p * 16, lanes_left(outputs, (panel + p) * 16)).store(strip + ((t - begin) * P + p) * 16);
      }
    }
    if (deposits + segments > kDepositsBeforeCarry) each_total(normalise), deposits = 0;
    deposits += segments;
    const Elem* rows = x + begin * x_stride;
    std::int64_t k = 0;
    const auto tile = [&]<int KK>(std::integral_constant<int, KK>) {
      for (; k + KK <= width; k += KK)
        product_weight_tile<V, KK, P>(totals + k * Accumulator::kStorage, width, strip, rows + k_begin + k, x_stride, ends, segments);
    };
    tile(std::integral_constant<int, kWide>());
    tile(std::integral_constant<int, 4>());
    tile(std::integral_constant<int, 1>());
    begin = end;
  }
  each_total([&](auto* total, std::int64_t at) {
    Accumulator sum = Accumulator::load(total);
    sum.normalise();
    if (finish || !bins) sum.total().store(gradient + at * 16);
    if (bins) (finish ? Accumulator::zero() : sum).store(bins + at * Accumulator::kStorage);
  });
}

// f(first, std::integral_constant<int, P>) for panels [begin, end), kWeightPanels at a time and what is left singly.
template <class V, class F>
inline void for_weight_panels(std::int64_t begin, std::int64_t end, const F& f) {
  constexpr int kPanels = kWeightPanels<V>;
  for (; begin + kPanels <= end; begin += kPanels) f(begin, std::integral_constant<int, kPanels>());
  if constexpr (kPanels > 1)
    for (; begin < end; ++begin) f(begin, std::integral_constant<int, 1>());
}

// Copies rows rounded to bf16 (study profiles) to `out`, dense.
template <class V>
inline void round_rows(typename V::Elem* out, const typename V::Elem* x, std::int64_t stride, std::int64_t rows, std::int64_t n) {
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t i = 0; i < n; ++i)
      out[t * n + i] = widen_element(store_bf16<typename V::Half>(x[t * stride + i]));
}

}  // namespace lockstep
