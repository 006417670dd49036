// The register-tiled products behind linear.h and head.h; order as written in linear.h. Included by their .inl.
// A tile is R rows by P panels of 16 outputs; every output's sum is its own chain, so R and P never change a bit.
#pragma once

namespace lockstep {

// The (rows x panels) shapes used for full blocks and for what is left over. One row reads each weight once: four panels side by side are read
// from memory faster than eight (33 against 28 GB/s of 36, one thread of a Zen 4), and their four sums still hide a multiply-add's latency.
template <class V, int R>
constexpr int panels_for_rows() {
  return R >= V::kRows ? V::kPanels : R == 1 ? 4 : R <= 3 ? (V::kRows >= 8 ? 4 : 2) : V::kPanels;
}

// Tiles of at most this many rows wait for memory, so they prefetch.
inline constexpr int kFewRows = 8;
// Bytes of weights that stay in the second cache while all rows pass.
inline constexpr std::int64_t kCachedWeights = 256 << 10;

// Prefetches what a product reads next while it multiplies, since the first tile of rows would otherwise wait for memory or the third-level cache.
// For every 8 inputs of a tile, two cache lines at `at` are fetched, which then moves on by `step` bytes, perhaps beyond the data.
struct ReadAhead {
  const char* at;
  std::int64_t step = 0;
};
// Prefetches nothing new: `at` is in the first cache already.
static inline ReadAhead no_read_ahead(const void* at) { return {static_cast<const char*>(at)}; }

// Prefetches the weights of the next part of a product of `rows` rows; each of its tiles fetches a share.
template <class V, class W>
inline ReadAhead weights_ahead(const W* weights, std::int64_t rows) {
  if (V::kRows <= kFewRows || rows < 4 * V::kRows) return no_read_ahead(weights);
  return {reinterpret_cast<const char*>(weights), rows < 16 * V::kRows ? 128 : 64};  // of a pair of panels 16 lines, by all tiles of rows together
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

// The sums' chains go on over inputs [k, stop); x, whose rows lie x_stride apart, and w are those of input 0.
// Every third row has a pointer, and the two behind it are one and two strides from it, which an address can say: twelve pointers are more than
// there are registers, and what is fetched back from memory or from a vector register each time takes a place that a multiply-add could have had.
template <class V, class W, int R, int P>
[[gnu::always_inline]] inline void multiply_inputs(V (&sum)[R][P], const typename V::Elem* x, std::int64_t x_stride, const W* w, std::int64_t inputs,
                                                   std::int64_t k, std::int64_t stop, ReadAhead& ahead) {
  using Elem = typename V::Elem;
  constexpr int kPointers = (R + 2) / 3, kTogether = 8;  // inputs at a time
  const auto after = [](auto* from, std::int64_t bytes) __attribute__((always_inline)) {
    return reinterpret_cast<decltype(from)>(reinterpret_cast<const char*>(from) + bytes);
  };
  const Elem* at[kPointers];
  for (int i = 0; i < kPointers; ++i) at[i] = x + 3 * i * x_stride + k;
  std::int64_t row_bytes = x_stride * static_cast<std::int64_t>(sizeof(Elem)), panel_bytes = inputs * 16 * static_cast<std::int64_t>(sizeof(W));
  const auto multiply = [&](int input) __attribute__((always_inline)) {
    V weight[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const W* const from = after(w, p * panel_bytes) + input * 16;
      if constexpr (R <= kFewRows) fetch_ahead(from);
      weight[p] = V::load(from);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const V value = V::set1(after(at[r / 3], r % 3 * row_bytes)[input]);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum[r][p] = fma(value, weight[p], sum[r][p]);
    }
  };
  // Says that the pointers and strides may have become any others, or the compiler makes a pointer of each sum of them again.
  const auto hide = [&]() __attribute__((always_inline)) {
    asm volatile("" : "+r"(row_bytes), "+r"(panel_bytes));
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) asm volatile("" : "+r"(at[i]));
  };
  const auto advance = [&](int input_count) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int i = 0; i < kPointers; ++i) at[i] += input_count;
    w += input_count * 16;
  };
  w += k * 16;
  const char* next = ahead.at;
  const std::int64_t step = ahead.step;
  std::int64_t left = stop - k;
  for (; left >= kTogether; left -= kTogether) {
    hide();
#pragma GCC unroll 8
    for (int input = 0; input < kTogether; ++input) multiply(input);
    advance(kTogether);
    if constexpr (R > kFewRows) {
      __builtin_prefetch(next, 0, 2);
      __builtin_prefetch(next + 64, 0, 2);
      next += step;
    }
  }
  for (; left > 0; --left) {
    hide();
    multiply(0);
    advance(1);
  }
  ahead.at = next;
}

// Writes the finished sums of a tile.
template <class V, class W, int R, int P>
[[gnu::always_inline]] inline void store_tile(const Product<V, W>& op, std::int64_t row, std::int64_t panel, V (&sum)[R][P]) {
  typename V::Elem* const y = op.y + row * op.y_stride + panel * 16;
  const std::int64_t y_stride = op.y_stride, lanes_here = op.outputs - panel * 16;
  if (op.scale == 1.0f && !op.accumulate && lanes_here >= P * 16) {  // the common case, without a question an output
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum[r][p].store(y + r * y_stride + p * 16);
    return;
  }
  const V scale = V::set1(op.scale);
  const bool scales = op.scale != 1.0f, accumulates = op.accumulate;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      typename V::Elem* const at = y + r * y_stride + p * 16;
      const int lanes = lanes_left(lanes_here, p * 16);
      if (scales) sum[r][p] = sum[r][p] * scale;
      if (accumulates) sum[r][p] = V::load_partial(at, lanes) + sum[r][p];
      if (lanes == 16) sum[r][p].store(at);
      else sum[r][p].store_partial(at, lanes);
    }
}

template <class V, class W, int R, int P>
inline void product_tile(const Product<V, W>& op, std::int64_t row, std::int64_t panel, ReadAhead& ahead) {
  const std::int64_t leaf_size = op.inputs >> __builtin_ctz(static_cast<unsigned>(op.leaves));  // a power of two
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
    multiply_inputs<V, W, R, P>(sum, op.x + row * op.x_stride, op.x_stride, w, op.inputs, leaf * leaf_size, (leaf + 1) * leaf_size, ahead);
    // The last leaf joins whatever still waits, so that every range has a sum. Unrolled: one loop over sums that is none keeps all of
    // them in memory, leaf after leaf.
    const bool last = leaf + 1 == op.leaf_end;
    int level = 0;
    for (; last ? filled != 0 : filled >> level & 1; ++level) {
      if (!(filled >> level & 1)) continue;
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) sum[r][p] = pending[level][r][p] + sum[r][p];
      filled &= ~(1u << level);
    }
    if (!last) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) pending[level][r][p] = sum[r][p];
      filled |= 1u << level;
    }
  }
  if (op.leaf_begin >= op.leaf_end)  // a share without leaves adds +0
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum[r][p] = V::zero();
  store_tile<V, W, R, P>(op, row, panel, sum);
}

// R rows, panels [begin, end).
template <class V, class W, int R>
inline void product_rows(const Product<V, W>& op, std::int64_t row, std::int64_t begin, std::int64_t end, ReadAhead& ahead) {
  constexpr int kPanels = panels_for_rows<V, R>();
  std::int64_t panel = begin;
  for (; panel + kPanels <= end; panel += kPanels) product_tile<V, W, R, kPanels>(op, row, panel, ahead);
  if constexpr (kPanels > 2)
    for (; panel + 2 <= end; panel += 2) product_tile<V, W, R, 2>(op, row, panel, ahead);
  for (; panel < end; ++panel) product_tile<V, W, R, 1>(op, row, panel, ahead);
}

// f(row, std::integral_constant<int, R>) for the tiles of `rows` rows.
template <class V, class F>
inline void for_row_tiles(std::int64_t rows, const F& f) {
  std::int64_t row = 0;
  for (; row + V::kRows <= rows; row += V::kRows) f(row, std::integral_constant<int, V::kRows>());
  if constexpr (V::kRows > 8)
    for (; row + 8 <= rows; row += 8) f(row, std::integral_constant<int, 8>());
  for (; row + 4 <= rows; row += 4) f(row, std::integral_constant<int, 4>());
  for (; row + 2 <= rows; row += 2) f(row, std::integral_constant<int, 2>());
  for (; row < rows; ++row) f(row, std::integral_constant<int, 1>());
}

}  // namespace lockstep
