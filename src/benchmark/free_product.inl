// Implementation of free_product.h over the virtual vector, cut into items as kernels/linear cuts its products.
namespace lockstep {

template <class V, int R, int P, int U>
static void free_tile(const FreeProduct& op, std::int64_t row, std::int64_t panel) {
  const float* x[R];
  for (int r = 0; r < R; ++r) x[r] = op.x + (row + r) * op.inputs;
  const float* w = op.w + panel * op.inputs * 16;
  V sum[U][R][P];
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u)
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum[u][r][p] = V::zero();
  const auto add = [&](std::int64_t k, int u) {
    V weight[P];
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) weight[p] = V::load(w + (p * op.inputs + k) * 16);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const V value = V::set1(x[r][k]);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum[u][r][p] = fma(value, weight[p], sum[u][r][p]);
    }
  };
  std::int64_t k = 0;
  for (; k + U <= op.inputs; k += U)
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) add(k + u, u);
  for (; k < op.inputs; ++k) add(k, 0);
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p) {
      V total = sum[0][r][p];
      for (int u = 1; u < U; ++u) total = total + sum[u][r][p];
      total.store_partial(op.y + (row + r) * op.outputs + (panel + p) * 16, lanes_left(op.outputs, (panel + p) * 16));
    }
}

template <class V, int R, int U>
static void free_rows(const FreeProduct& op, std::int64_t row, std::int64_t begin, std::int64_t end) {
  constexpr int kAll = R >= V::kRows ? V::kPanels : R == 1 ? (V::kRows >= 8 ? 8 : 4) : R <= 3 ? (V::kRows >= 8 ? 4 : 2) : V::kPanels;
  constexpr int kPanels = kAll / U > 0 ? kAll / U : 1;
  for (; begin + kPanels <= end; begin += kPanels) free_tile<V, R, kPanels, U>(op, row, begin);
  for (; begin < end; ++begin) free_tile<V, R, 1, U>(op, row, begin);
}

template <class V, int U>
static void free_block(const FreeProduct& op, std::int64_t row, std::int64_t end_row, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kCached = 256 << 10;  // bytes of weights that all rows pass by
  const std::int64_t fitting = std::max<std::int64_t>(V::kPanels, kCached / (op.inputs * 64) / V::kPanels * V::kPanels);
  const std::int64_t group = end_row - row <= V::kRows ? end - begin : fitting;
  for (; begin < end; begin += group) {
    const std::int64_t stop = std::min(end, begin + group);
    std::int64_t t = row;
    for (; t + V::kRows <= end_row; t += V::kRows) free_rows<V, V::kRows, U>(op, t, begin, stop);
    if constexpr (V::kRows > 8)
      for (; t + 8 <= end_row; t += 8) free_rows<V, 8, U>(op, t, begin, stop);
    for (; t + 4 <= end_row; t += 4) free_rows<V, 4, U>(op, t, begin, stop);
    for (; t + 2 <= end_row; t += 2) free_rows<V, 2, U>(op, t, begin, stop);
    for (; t < end_row; ++t) free_rows<V, 1, U>(op, t, begin, stop);
  }
}

template <class V>
static void free_product_of(const FreeProduct& op, ThreadPool& pool) {
  const std::int64_t panels = (op.outputs + 15) / 16, row_block = op.rows >= 256 ? 96 : 48, row_blocks = (op.rows + row_block - 1) / row_block;
  const std::int64_t wanted = (pool.threads() * 8 + row_blocks - 1) / row_blocks;
  const std::int64_t panel_block = wanted == 1 ? panels : std::max<std::int64_t>(8, (panels + wanted - 1) / wanted + 1) / 2 * 2;
  const std::int64_t panel_blocks = (panels + panel_block - 1) / panel_block;
  pool.run(row_blocks * panel_blocks, [&](std::int64_t item) {
    const std::int64_t row = item / panel_blocks * row_block, end_row = std::min(op.rows, row + row_block);
    const std::int64_t panel = item % panel_blocks * panel_block, end = std::min(panels, panel + panel_block);
    if (op.accumulators == 1) free_block<V, 1>(op, row, end_row, panel, end);
    else if (op.accumulators == 2) free_block<V, 2>(op, row, end_row, panel, end);
    else free_block<V, 4>(op, row, end_row, panel, end);
  });
}

}  // namespace lockstep
