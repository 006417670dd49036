// What the CUDA products of product_cuda.h share: their operands, the rows of a tile, the join of leaves.
#pragma once
#include "kernels/cuda/prelude.h"

#ifdef __CUDACC__
#define LOCKSTEP_UNROLL _Pragma("unroll")
#define LOCKSTEP_NO_UNROLL _Pragma("unroll 1")
#else
#define LOCKSTEP_UNROLL _Pragma("GCC unroll 8")
#define LOCKSTEP_NO_UNROLL _Pragma("GCC unroll 1")
#endif

namespace lockstep::LOCKSTEP_CUDA_SPACE {

// Four floats that lie together, read at once.
struct alignas(16) FourFloats {
  float at[4];
};

// The operands of `count` products; strides and steps in elements. Item g as in linear.h: its rows, or its columns.
struct ProductItems {
  float* y;
  std::int64_t y_stride, y_step;
  const float* x;
  std::int64_t x_stride, x_step;
  std::int64_t rows, inputs, outputs, count;
  const std::int32_t *offsets, *ends;  // null: every item has all rows
  int leaves, leaf_begin, leaf_end;    // leaf_end <= leaves
  bool round_input_bf16, accumulate;
  float scale;
  std::int32_t* rows_made;  // or null; a row counts when its first output is written, which one thread does

  LOCKSTEP_EVERYWHERE std::int64_t panels() const { return (outputs + kLanes - 1) / kLanes; }
  LOCKSTEP_EVERYWHERE std::int64_t leaf_size() const { return inputs / leaves; }
  LOCKSTEP_EVERYWHERE int own_leaves() const { return leaf_end > leaf_begin ? leaf_end - leaf_begin : 0; }
  // Tiles of `tile` rows that are enough for all items, whatever the offsets are.
  LOCKSTEP_EVERYWHERE std::int64_t row_tiles(std::int64_t tile) const { return offsets ? rows / tile + count : (rows + tile - 1) / tile * count; }
  // What is read of x for the product.
  LOCKSTEP_DEVICE float input(std::int64_t item, std::int64_t row, std::int64_t k) const {
    const float value = x[row * x_stride + item * x_step + k];
    return round_input_bf16 ? widen(round_to_bf16(value)) : value;
  }
  LOCKSTEP_DEVICE void output(std::int64_t item, std::int64_t row, std::int64_t n, float sum) const {
    float* at = y + row * y_stride + item * y_step + n;
    if (scale != 1.0f) sum = sum * scale;
    if (rows_made && n == 0) ++rows_made[row];
    *at = accumulate ? *at + sum : sum;
  }
};

// Rows [begin, end) of an item; none if the item is -1.
struct RowTile {
  std::int64_t item, begin, end;
};
LOCKSTEP_DEVICE RowTile row_tile(const std::int32_t* offsets, const std::int32_t* ends, std::int64_t count, std::int64_t rows, std::int64_t index,
                                 std::int64_t tile) {
  if (!offsets) {
    const std::int64_t tiles = (rows + tile - 1) / tile, begin = index % tiles * tile;
    return {index / tiles, begin, begin + tile < rows ? begin + tile : rows};
  }
  for (std::int64_t g = 0; g < count; ++g) {
    const std::int64_t begin = offsets[g], end = ends ? ends[g] : offsets[g + 1];
    const std::int64_t tiles = end > begin ? (end - begin + tile - 1) / tile : 0;
    if (index < tiles) return {g, begin + index * tile, begin + (index + 1) * tile < end ? begin + (index + 1) * tile : end};
    index -= tiles;
  }
  return {-1, 0, 0};
}
LOCKSTEP_DEVICE RowTile row_tile(const ProductItems& op, std::int64_t index, std::int64_t tile) {
  return row_tile(op.offsets, op.ends, op.count, op.rows, index, tile);
}

// The pairwise join of leaves that come one after another, of N sums at once: a finished subtree waits for its right neighbour at the
// level of its height, and the last leaf joins whatever still waits, so that every range of leaves has a sum. What waits is indexed by
// number, so that it lies in the thread's memory and takes no registers from the sums: it is touched once a leaf.
template <int N>
class LeafTree {
 public:
  LOCKSTEP_DEVICE void join(float (&sum)[N], bool last) {
    LOCKSTEP_NO_UNROLL
    for (int level = 0; level < kLevels; ++level) {
      const unsigned bit = 1u << level;
      if (filled_ & bit) {
        LOCKSTEP_UNROLL
        for (int i = 0; i < N; ++i) sum[i] = waiting_[level][i] + sum[i];
        filled_ &= ~bit;
      } else if (!last) {
        LOCKSTEP_UNROLL
        for (int i = 0; i < N; ++i) waiting_[level][i] = sum[i];
        filled_ |= bit;
        return;
      }
    }
  }

 private:
  static constexpr int kLevels = 4;  // up to 16 leaves
  float waiting_[kLevels][N];
  unsigned filled_ = 0;
};

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
