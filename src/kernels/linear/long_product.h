// Products of long sums (product.h), a part of the inputs at a time: the same chains and the same joins, kept in memory between parts.
#pragma once

#include "kernels/linear/product_tiles.h"

namespace lockstep {

// How long sums are made: a part of the inputs at a time, so that the part of x of a tile stays in the first cache while panels pass, and the weights
// of a part in the second while row tiles do. Shorter ones lose more by coming back to their sums than they gain.
inline constexpr std::int64_t kWholeInputs = 4096, kWholeOfManyRows = 2048, kManyRows = 96, kPartInputs = 640;
template <class V>
constexpr bool in_parts(std::int64_t rows, std::int64_t inputs) {
  return rows > V::kRows && inputs > (rows < kManyRows ? kWholeInputs : kWholeOfManyRows);
}

// The end of the part of the inputs that begins at k: some whole leaves, or an even share of one.
inline std::int64_t part_end(std::int64_t k, std::int64_t leaf_size) {
  if (leaf_size <= kPartInputs) return k + kPartInputs / leaf_size * leaf_size;
  const std::int64_t parts = (leaf_size + kPartInputs - 1) / kPartInputs, size = (leaf_size + parts - 1) / parts;
  return std::min(k + size, (k / leaf_size + 1) * leaf_size);
}

// Vectors of an output that wait for the rest of its sum: the chain of an unfinished leaf, then finished subtrees of 1, 2, 4 and 8 leaves until their
// right neighbour is done. Which of these there are is the binary form of the number of leaves done.
inline constexpr int kWaiting = 5;

// Inputs [k_begin, k_end) of a tile's sums, some of a sum or all. x and w begin with input k_begin; of w the panels lie `apart` inputs from each other.
// What went before and what comes after pass through `waiting`, kWaiting vectors an output: a chain goes on with the bits that it stopped with. The last
// inputs write y.
template <class V, class W, int R, int P>
inline void product_part(const Product<V, W>& op, std::int64_t row, std::int64_t panel, const W* w, std::int64_t apart, std::int64_t k_begin,
                         std::int64_t k_end, typename V::Elem* waiting, ReadAhead& ahead) {
  const std::int64_t leaf_size = op.inputs >> __builtin_ctz(static_cast<unsigned>(op.leaves)), inputs = k_end - k_begin;
  const auto place = [&](int level, int r, int p) { return waiting + ((level * R + r) * P + p) * 16; };
  V sum[R][P];
  for (std::int64_t k = 0, leaf = k_begin / leaf_size; k < inputs; ++leaf) {  // k counts from k_begin
    const std::int64_t leaf_end = (leaf + 1) * leaf_size - k_begin, stop = std::min(inputs, leaf_end);
    const bool goes_on = k_begin + k > leaf * leaf_size;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum[r][p] = goes_on ? V::load(place(0, r, p)) : V::zero();
    multiply_inputs<V, W, R, P>(sum, op.x + row * op.x_stride, op.x_stride, w, apart, k, stop, ahead);
    k = stop;
    int level = 0;
    if (stop == leaf_end) {  // as in product_tile
      const bool last = leaf + 1 == op.leaf_end;
      unsigned filled = static_cast<unsigned>(leaf - op.leaf_begin);
      for (level = 1; last ? filled != 0 : (filled & 1) != 0; ++level, filled >>= 1) {
        if (!(filled & 1)) continue;
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
          for (int p = 0; p < P; ++p) sum[r][p] = V::load(place(level, r, p)) + sum[r][p];
      }
      if (last) return store_tile<V, W, R, P>(op, row, panel, sum);
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum[r][p].store(place(level, r, p));
  }
}

// product_block for long sums.
template <class V, class W>
inline void product_in_parts(const Product<V, W>& op, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  using Elem = typename V::Elem;
  constexpr std::int64_t kPair = V::kPanels;
  const std::int64_t leaf_size = op.inputs >> __builtin_ctz(static_cast<unsigned>(op.leaves));
  const std::int64_t k_begin = op.leaf_begin * leaf_size, k_end = op.leaf_end * leaf_size;
  const std::int64_t group = std::max(kPair, kCachedWeights / (kPartInputs * 16 * static_cast<std::int64_t>(sizeof(W))) / kPair * kPair);
  const auto part_stop = [=](std::int64_t k) { return std::min(k_end, part_end(k, leaf_size)); };
  const auto w_at = [&op](std::int64_t panel, std::int64_t k) { return op.w + (panel * op.inputs + k) * 16; };
  Elem* waiting = thread_scratch<Elem, 5>(static_cast<std::size_t>(kWaiting * 16 * rows * group));
  // Rows of a part of x one after another: rows whole pages apart would lie in the same sets of the first cache, which has fewer ways than a tile rows.
  Elem* packed = thread_scratch<Elem, 6>(static_cast<std::size_t>(rows * (k_end - k_begin)));
  for (std::int64_t first = begin; first < end; first += group) {
    const std::int64_t group_end = std::min(end, first + group);
    for (std::int64_t k = k_begin, stop; k < k_end; k = stop) {
      stop = part_stop(k);
      Product<V, W> part = op;
      Elem* const to = packed + rows * (k - k_begin);
      if (first == begin)
        for (std::int64_t t = 0; t < rows; ++t)
          __builtin_memcpy(to + t * (stop - k), op.x + t * op.x_stride + k, static_cast<std::size_t>(stop - k) * sizeof(Elem));
      part.x = to;
      part.x_stride = stop - k;
      for_row_tiles<V>(rows, [&](std::int64_t row, auto tile) {
        constexpr int kRows = decltype(tile)::value;
        Elem* of_tile = waiting + row * group * kWaiting * 16;
        std::int64_t panel = first;
        for (; panel + kPair <= group_end; panel += kPair, of_tile += kPair * kRows * kWaiting * 16) {
          // Every other tile of rows asks for a slice of the next part of one of the panels.
          const W* const next = w_at(panel + row / kRows % kPair, stop) + (part_stop(stop) - stop) * 16 * row / rows;
          ReadAhead ahead = weights_ahead<V>(next, stop < k_end ? rows : 0);
          product_part<V, W, kRows, kPair>(part, row, panel, w_at(panel, k), op.inputs, k, stop, of_tile, ahead);
        }
        ReadAhead none = no_read_ahead(part.w);
        for (; panel < group_end; ++panel, of_tile += kRows * kWaiting * 16)
          product_part<V, W, kRows, 1>(part, row, panel, w_at(panel, k), op.inputs, k, stop, of_tile, none);
      });
    }
  }
}

}  // namespace lockstep
