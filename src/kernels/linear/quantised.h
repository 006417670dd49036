// Products with integer weights (linear.h, numerics/quantised.h). Rows of x are quantised once, then multiplied in tiles of rows x panels as in
// product.h. Included by .inl files; every function is a template over V, and over Dot, the instruction set's exact sums.
#pragma once
#include LOCKSTEP_INTEGER_DOT

namespace lockstep {

// Rows of x in groups of 32 integers. `q` and the rest lie in the scratch of the thread that made them.
template <class V, class Dot>
struct QuantisedRows {
  typename Dot::Stored* q;  // [rows, groups * 32]
  typename V::Elem* scale;  // [rows, groups]
  std::int32_t* sum;        // [rows, groups], of q
  std::int64_t groups;
};

template <class V, class Dot>
inline void quantise_row(const typename V::Elem* x, std::int64_t n, const QuantisedRows<V, Dot>& out, std::int64_t row) {
  using Elem = typename V::Elem;
  typename Dot::Stored* q = out.q + row * out.groups * kQuantisedGroup;
  for (std::int64_t g = 0; g < out.groups; ++g, q += kQuantisedGroup) {
    const std::int64_t begin = g * kQuantisedGroup;
    const V a = n - begin >= 16 ? V::load(x + begin) : V::load_partial(x + begin, lanes_left(n, begin));
    const V b = n - begin >= 32 ? V::load(x + begin + 16) : n - begin > 16 ? V::load_partial(x + begin + 16, lanes_left(n, begin + 16)) : V::zero();
    Elem scale = Dot::largest_magnitude(a, b) / element<Elem>(127.0f);
    std::int32_t sum = 0;
    if (value_of(scale) >= kLeastScale && value_of(scale) - value_of(scale) == 0.0f) {
      const V inverse = V::set1(element<Elem>(1.0f) / scale);
      sum = Dot::store(a * inverse, b * inverse, q);
    } else {
      if (value_of(scale) < kLeastScale) scale = element<Elem>(0.0f);
      else scale = scale - scale;  // infinity and NaN alike
      for (std::int64_t i = 0; i < kQuantisedGroup; ++i) q[i] = Dot::zero();
    }
    out.scale[row * out.groups + g] = scale;
    out.sum[row * out.groups + g] = sum;
  }
}

// Rows [0, rows) of n columns; item t of row(t) is a pointer. Few rows are done at once, on the calling thread.
template <class V, class Dot, class RowOf>
inline QuantisedRows<V, Dot> quantise_rows(std::int64_t rows, std::int64_t n, ThreadPool& pool, const RowOf& row_of) {
  const std::int64_t groups = (n + kQuantisedGroup - 1) / kQuantisedGroup;
  // Uses of their own, since types may be the same: these rows are read by every thread while the caller works on its share.
  const std::size_t all = static_cast<std::size_t>(rows * groups);
  const QuantisedRows<V, Dot> out{thread_scratch<typename Dot::Stored, 1>(all * kQuantisedGroup), thread_scratch<typename V::Elem, 2>(all),
                                  thread_scratch<std::int32_t, 3>(all), groups};
  constexpr std::int64_t kBlock = 16;
  const auto block = [&](std::int64_t at) {
    for (std::int64_t t = at * kBlock; t < std::min(rows, at * kBlock + kBlock); ++t) quantise_row<V, Dot>(row_of(t), n, out, t);
  };
  if (rows <= kBlock) block(0);
  else pool.run((rows + kBlock - 1) / kBlock, block);
  return out;
}

template <class V, class Dot>
struct QuantisedProduct {
  typename V::Elem* y;
  std::int64_t y_stride;
  QuantisedRows<V, Dot> x;
  std::int64_t x_begin, x_step;  // row r of y reads row x_begin + r * x_step
  const std::uint8_t* w;
  QuantisedShape shape;
  int leaves, leaf_begin, leaf_end;
};

template <class V, class Dot, int Bits, int R, int P>
inline void quantised_tile(const QuantisedProduct<V, Dot>& op, std::int64_t row, std::int64_t panel) {
  using Stored = typename Dot::Stored;
  const std::int64_t groups = op.x.groups, leaf_size = groups / op.leaves;
  constexpr std::int64_t kGroupBytes = kQuantisedGroup * 16 * Bits / 8;
  const Stored* q[R];
  std::int64_t at[R];
  for (int r = 0; r < R; ++r) {
    at[r] = (op.x_begin + (row + r) * op.x_step) * groups;
    q[r] = op.x.q + at[r] * kQuantisedGroup;
  }
  const std::int64_t panel_bytes = op.shape.panel_bytes();
  const std::uint8_t* scales = op.w + panel * panel_bytes;
  const std::uint8_t* bytes = scales + op.shape.scale_bytes();
  V pending[4][R][P];  // as in product_tile
  unsigned filled = 0;
  V sum[R][P];
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) sum[r][p] = V::zero();
  for (int leaf = op.leaf_begin; leaf < op.leaf_end; ++leaf) {
    for (int r = 0; r < R; ++r)
      for (int p = 0; p < P; ++p) sum[r][p] = V::zero();
    for (std::int64_t g = leaf * leaf_size; g < (leaf + 1) * leaf_size; ++g) {
      typename Dot::Sum part[R][P];
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) part[r][p] = Dot::template start<Bits>(op.x.sum[at[r] + g]);
      const std::uint8_t* group = bytes + g * kGroupBytes;
#pragma GCC unroll 8
      for (int step = 0; step < Bits; ++step) {  // of 64 bytes a panel
        typename Dot::Weights w[P];
#pragma GCC unroll 8
        for (int p = 0; p < P; ++p) w[p] = Dot::template load<Bits>(group + p * panel_bytes + step * 64);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const Stored* x = q[r] + g * kQuantisedGroup + step * (Bits == 8 ? 4 : 8);
          if constexpr (Bits == 8) {
            const typename Dot::Row four = Dot::row(x);
#pragma GCC unroll 8
            for (int p = 0; p < P; ++p) Dot::template add<8>(part[r][p], w[p], four);
          } else {
            const typename Dot::Row four = Dot::row(x), next = Dot::row(x + 4);
#pragma GCC unroll 8
            for (int p = 0; p < P; ++p) {
              Dot::template add<4>(part[r][p], Dot::low(w[p]), four);
              Dot::template add<4>(part[r][p], Dot::high(w[p]), next);
            }
          }
        }
      }
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        const V scale = Dot::scales(scales + p * panel_bytes + g * 32);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
          sum[r][p] = fma(Dot::template finish<Bits>(part[r][p], op.x.sum[at[r] + g]), V::set1(op.x.scale[at[r] + g]) * scale, sum[r][p]);
      }
    }
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
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) {
      typename V::Elem* y = op.y + (row + r) * op.y_stride + (panel + p) * 16;
      const int lanes = lanes_left(op.shape.outputs, (panel + p) * 16);
      if (lanes == 16) sum[r][p].store(y);
      else sum[r][p].store_partial(y, lanes);
    }
}

template <class V, class Dot, int Bits, int R>
inline void quantised_rows(const QuantisedProduct<V, Dot>& op, std::int64_t row, std::int64_t begin, std::int64_t end) {
  constexpr bool kWide = V::kRows > 8;
  constexpr int kPanels = R <= 2 ? (kWide ? 4 : 2) : kWide ? 2 : 1;
  for (; begin + kPanels <= end; begin += kPanels) quantised_tile<V, Dot, Bits, R, kPanels>(op, row, begin);
  for (; begin < end; ++begin) quantised_tile<V, Dot, Bits, R, 1>(op, row, begin);
}

// Rows [0, rows) x panels [begin, end): a few panels stay in the first cache while all rows pass.
template <class V, class Dot, int Bits>
inline void quantised_block(const QuantisedProduct<V, Dot>& op, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  constexpr int kRows = V::kRows > 8 ? 8 : 4;
  const std::int64_t group = rows <= kRows ? end - begin : 4;
  for (; begin < end; begin += group) {
    const std::int64_t stop = std::min(end, begin + group);
    std::int64_t row = 0;
    for (; row + kRows <= rows; row += kRows) quantised_rows<V, Dot, Bits, kRows>(op, row, begin, stop);
    if constexpr (kRows > 4)
      for (; row + 4 <= rows; row += 4) quantised_rows<V, Dot, Bits, 4>(op, row, begin, stop);
    for (; row + 2 <= rows; row += 2) quantised_rows<V, Dot, Bits, 2>(op, row, begin, stop);
    for (; row < rows; ++row) quantised_rows<V, Dot, Bits, 1>(op, row, begin, stop);
  }
}

template <class V, class Dot>
inline void quantised_forward(QuantisedProduct<V, Dot> op, std::int64_t rows, int maximum_leaves, int leaf_begin, int leaf_end, std::int64_t panel_begin,
                              std::int64_t panel_end) {
  op.leaves = quantised_leaf_count(op.shape.inputs, maximum_leaves);
  op.leaf_begin = leaf_begin;
  op.leaf_end = std::min(leaf_end, op.leaves);
  if (op.shape.bits == 8) quantised_block<V, Dot, 8>(op, rows, panel_begin, panel_end);
  else quantised_block<V, Dot, 4>(op, rows, panel_begin, panel_end);
}

// Element (output, k) of a packed table, as the head's product sees it.
template <class V>
inline void dequantised_output(const std::uint8_t* table, const QuantisedShape& shape, std::int64_t output, typename V::Elem* y) {
  using Elem = typename V::Elem;
  const std::uint8_t* scales = table + output / 16 * shape.panel_bytes();
  const std::int64_t lane = output % 16;
  for (std::int64_t k = 0; k < shape.inputs; ++k) {
    Bf16 scale;
    __builtin_memcpy(&scale, scales + (k / kQuantisedGroup * 16 + lane) * 2, 2);
    y[k] = element<Elem>(static_cast<float>(quantised_integer(scales + shape.scale_bytes(), shape.bits, lane, k))) *
           element<Elem>(bits_float(static_cast<std::uint32_t>(scale.bits) << 16));
  }
}

}  // namespace lockstep
