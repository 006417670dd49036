// The gradient of a product's input where its weight is too large to be transposed whole (the head's): the chains of product_part (long_product.h), over
// parts of the outputs that each item of work transposes for itself, into its second cache. Included by linear.inl.
#pragma once

#include "kernels/linear/product.h"

namespace lockstep {

inline constexpr std::int64_t kTransposedPart = 384;
// With more rows than this the transposed weight is read several times, and it is better to transpose it whole once.
inline constexpr std::int64_t kTransposedRows = 192;

// The end of the part that begins at output n: an even share of a leaf, in whole panels.
static inline std::int64_t transposed_part_end(std::int64_t n, std::int64_t leaf_size) {
  const std::int64_t parts = (leaf_size + kTransposedPart - 1) / kTransposedPart, size = (leaf_size / 16 + parts - 1) / parts * 16;
  return std::min(n + size, (n / leaf_size + 1) * leaf_size);
}

// Whether the input's gradient is computed this way: for few rows and long sums whose leaves are whole panels.
template <class V>
inline bool transposes_in_parts(std::int64_t rows, std::int64_t outputs, int maximum_leaves) {
  const std::int64_t leaf_size = outputs / leaf_count(outputs, maximum_leaves);
  return rows <= kTransposedRows && in_parts<V>(rows, outputs) && leaf_size % 16 == 0 && leaf_size >= kTransposedPart;
}

// op: y the input's gradient, x the output's, inputs the weight's outputs, w none; rows [0, rows), panels [begin, end) of the transposed weight, whose
// own panels, over `weight_inputs`, stand at `weight`.
template <class V, class W>
inline void product_transposed(Product<V, typename V::Elem> op, std::int64_t rows, int maximum_leaves, const W* weight, std::int64_t weight_inputs,
                               std::int64_t begin, std::int64_t end) {
  using Elem = typename V::Elem;
  constexpr std::int64_t kPair = V::kPanels;
  op.leaves = leaf_count(op.inputs, maximum_leaves);
  op.leaf_begin = 0;
  op.leaf_end = op.leaves;
  const std::int64_t leaf_size = op.inputs / op.leaves, panels = end - begin, tiles = std::max<std::int64_t>(1, rows / V::kRows * (panels / kPair));
  Elem* const waiting = thread_scratch<Elem, 5>(static_cast<std::size_t>(kWaiting * 16 * rows * panels));
  Elem* const packed = thread_scratch<Elem, 6>(static_cast<std::size_t>((rows + panels * 16) * (kTransposedPart + 16)));
  const auto panel_of = [&](std::int64_t n) { return weight + (n / 16 * weight_inputs + begin * 16) * 16; };
  for (std::int64_t n = 0, stop; n < op.inputs; n = stop) {
    stop = transposed_part_end(n, leaf_size);
    const std::int64_t size = stop - n, next = std::min(op.inputs, stop + size);
    Elem* const transposed = packed + rows * size;
    for (std::int64_t t = 0; t < rows; ++t)  // rows may lie whole pages apart, in the same sets of the caches
      for (std::int64_t i = 0; i < size; i += 16) V::load(op.x + t * op.x_stride + n + i).store(packed + t * size + i);
    for (std::int64_t at = n; at < stop; at += 16)
      for (std::int64_t p = 0; p < panels; ++p)
        transpose_block<V, W>(transposed + (p * size + at - n) * 16, weight + at / 16 * weight_inputs * 16, 16, weight_inputs, begin + p);
    Product<V, Elem> part = op;
    part.x = packed;
    part.x_stride = size;
    std::int64_t done = 0;
    for_row_tiles<V>(rows, [&](std::int64_t row, auto tile) {
      constexpr int kRows = decltype(tile)::value;
      Elem* of_tile = waiting + row * panels * kWaiting * 16;
      std::int64_t p = 0;
      for (; p + kPair <= panels; p += kPair, of_tile += kPair * kRows * kWaiting * 16, ++done) {
        // Each tile asks for its slice of the weight's next part.
        const std::int64_t of_next = (next - stop) * panels * done / tiles, of_panel = panels * 16;
        ReadAhead ahead = weights_ahead<V>(panel_of(stop + of_next / of_panel * 16) + of_next % of_panel * 16, next > stop ? rows : 0);
        product_part<V, Elem, kRows, kPair>(part, row, begin + p, transposed + p * size * 16, size, n, stop, of_tile, ahead);
      }
      ReadAhead none = no_read_ahead(transposed);
      for (; p < panels; ++p, of_tile += kRows * kWaiting * 16)
        product_part<V, Elem, kRows, 1>(part, row, begin + p, transposed + p * size * 16, size, n, stop, of_tile, none);
    });
  }
}

}  // namespace lockstep
