// The wide tile of product_cuda.h: 8 warps share a tile of 128 outputs in shared memory.
#pragma once
#include "kernels/linear/product_items_cuda.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

// Where few tiles would leave a GPU idle, the leaves of a tile are cut into `parts` equal ranges, a block each. A range of 2^i of 2^j leaves is a
// subtree of their join, so its sum waits in `partial` and JoinPartsBody joins the ranges as the tree does.
template <int kRows, class Weights>
struct WideProductBody {
  static constexpr bool kCooperates = true;
  static constexpr int kThreads = 256, kOutputs = 128, kStep = 16, kTileRows = kThreads / 32 * kRows;
  // Lines of shared memory are so far apart that the threads of a warp write to different banks.
  static constexpr int kLine = kOutputs + (Weights::kAcross ? 4 : 16), kInputLine = kTileRows + 4;
  static constexpr int kWeights = kStep * kOutputs / kThreads, kInputs = kStep * kTileRows / kThreads;
  static constexpr std::size_t kStage = kStep * (kLine + kInputLine);  // floats; two of them take turns
  static constexpr std::size_t kSharedBytes = 2 * kStage * sizeof(float);

  ProductItems op;
  Weights weights;
  int parts;
  float* partial;  // [parts, rows, outputs]; null: one part, which writes the outputs

  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t column_tiles = (op.outputs + kOutputs - 1) / kOutputs, at_tile = t.block() / parts;
    const int part = static_cast<int>(t.block() % parts), part_leaves = op.own_leaves() / parts, first_leaf = op.leaf_begin + part * part_leaves;
    const RowTile tile = row_tile(op, at_tile / column_tiles, kTileRows);
    if (tile.item < 0) return;
    const std::int64_t first_output = at_tile % column_tiles * kOutputs;
    const int row = t.index() / 32 * kRows, column = t.index() % 32 * 4;

    float sum[kRows * 4], next_weights[kWeights], next_inputs[kInputs];
    LeafTree<kRows * 4> tree;
    clear(sum);
    const std::int64_t leaf_size = op.leaf_size(), k_end = (first_leaf + part_leaves) * leaf_size;
    std::int64_t k = first_leaf * leaf_size, leaf_stop = k + leaf_size;
    int stage = 0;
    if (k < k_end) fetch(t, tile, first_output, k, leaf_stop, next_weights, next_inputs);
    while (k < k_end) {
      const int count = static_cast<int>(leaf_stop - k < kStep ? leaf_stop - k : kStep);
      float* lines = t.shared<float>() + stage * kStage;
      float* input_lines = lines + kStep * kLine;
      put(t, lines, input_lines, next_weights, next_inputs);
      t.sync();  // what two steps ago stood in this stage has been read: all threads came here since
      stage ^= 1;
      k += count;
      const bool leaf_done = k == leaf_stop;
      if (leaf_done) leaf_stop += leaf_size;
      if (k < k_end) fetch(t, tile, first_output, k, leaf_stop, next_weights, next_inputs);
      if (count == kStep) {
        LOCKSTEP_UNROLL
        for (int i = 0; i < kStep; ++i) add_input(sum, lines + i * kLine + column, input_lines + i * kInputLine + row);
      } else {
        for (int i = 0; i < count; ++i) add_input(sum, lines + i * kLine + column, input_lines + i * kInputLine + row);
      }
      if (leaf_done) {
        tree.join(sum, k == k_end);
        if (k < k_end) clear(sum);
      }
    }
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) LOCKSTEP_UNROLL
    for (int c = 0; c < 4; ++c)
      if (tile.begin + row + r < tile.end && first_output + column + c < op.outputs) {
        const std::int64_t at_row = tile.begin + row + r, n = first_output + column + c;
        if (partial) partial[(part * op.rows + at_row) * op.outputs + n] = sum[r * 4 + c];
        else op.output(tile.item, at_row, n, sum[r * 4 + c]);
      }
  }

 private:
  LOCKSTEP_DEVICE static void clear(float (&sum)[kRows * 4]) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kRows * 4; ++i) sum[i] = 0.0f;
  }
  LOCKSTEP_DEVICE static void add_input(float (&sum)[kRows * 4], const float* line, const float* values) {
    const FourFloats w = *reinterpret_cast<const FourFloats*>(line);
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) LOCKSTEP_UNROLL
    for (int c = 0; c < 4; ++c) sum[r * 4 + c] = fused(values[r], w.at[c], sum[r * 4 + c]);
  }

  // Where this thread's i-th element of a stage of weights stands: input `k` of the step, output `n` of the tile. Neighbouring threads
  // read neighbouring elements of memory.
  struct Place {
    int k, n;
  };
  LOCKSTEP_DEVICE static Place place(const Thread& t, int i) {
    const int at = t.index() + i * kThreads;
    if constexpr (Weights::kAcross) return {at % kStep, at / kStep};
    else return {at / kLanes % kStep, at / (kLanes * kStep) * kLanes + at % kLanes};
  }
  // Inputs [k, k_end) of the tile, at most kStep, into registers: the reads are under way while the step before is computed.
  LOCKSTEP_DEVICE void fetch(const Thread& t, const RowTile& tile, std::int64_t first_output, std::int64_t k, std::int64_t k_end, float (&w)[kWeights],
                             float (&x)[kInputs]) const {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kWeights; ++i) {
      const Place at = place(t, i);
      const std::int64_t n = first_output + at.n;
      w[i] = k + at.k < k_end && n / kLanes < op.panels() ? weights(tile.item, n / kLanes, k + at.k, static_cast<int>(n % kLanes)) : 0.0f;
    }
    LOCKSTEP_UNROLL
    for (int i = 0; i < kInputs; ++i) {
      const int at = t.index() + i * kThreads;
      const std::int64_t row = tile.begin + at / kStep;
      x[i] = k + at % kStep < k_end && row < tile.end ? op.input(tile.item, row, k + at % kStep) : 0.0f;
    }
  }
  LOCKSTEP_DEVICE static void put(const Thread& t, float* lines, float* input_lines, const float (&w)[kWeights], const float (&x)[kInputs]) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kWeights; ++i) {
      const Place at = place(t, i);
      lines[at.k * kLine + at.n] = w[i];
    }
    LOCKSTEP_UNROLL
    for (int i = 0; i < kInputs; ++i) {
      const int at = t.index() + i * kThreads;
      input_lines[at % kStep * kInputLine + at / kStep] = x[i];
    }
  }
};

// Joins the parts of an output; item: row major.
struct JoinPartsBody {
  ProductItems op;
  int parts;
  const float* partial;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    LeafTree<1> tree;
    float total[1] = {0.0f};
    for (int part = 0; part < parts; ++part) {
      total[0] = partial[part * op.rows * op.outputs + item];
      tree.join(total, part + 1 == parts);
    }
    op.output(0, item / op.outputs, item % op.outputs, total[0]);
  }
};

// Blocks that keep a GPU busy; to tests every shape of a tile matters, so a few are enough there.
#ifdef __CUDACC__
inline constexpr std::int64_t kBusyBlocks = 264;
#else
inline constexpr std::int64_t kBusyBlocks = 4;
#endif

// Into how many parts the leaves of such a product may be cut: only where rows are those of one item and its leaves make a whole tree.
inline int most_parts(const ProductItems& op) {
  constexpr std::int64_t kMostPartial = std::int64_t{64} << 20;  // numbers that wait
  const int leaves = op.own_leaves();
  if (op.offsets || op.count != 1 || leaves < 1 || (leaves & (leaves - 1)) != 0) return 1;
  const std::int64_t outputs = op.rows * op.outputs, most = outputs > 0 ? kMostPartial / outputs : 1;
  int parts = leaves;
  while (parts > 1 && parts > most) parts /= 2;
  return parts;
}

template <int kRows, class Weights>
void launch_wide(const ProductItems& op, const Weights& weights, Grid& grid) {
  using Body = WideProductBody<kRows, Weights>;
  constexpr int kPartsSlot = 7;  // of scratch, which no other kernel takes
  const std::int64_t tiles = op.row_tiles(Body::kTileRows) * ((op.outputs + Body::kOutputs - 1) / Body::kOutputs);
  int parts = 1;
  for (const int most = most_parts(op); parts < most && tiles * parts < kBusyBlocks;) parts *= 2;
  float* partial = parts > 1 ? grid.scratch<float>(kPartsSlot, parts * op.rows * op.outputs) : nullptr;
  grid.run(tiles * parts, Body::kThreads, Body{op, weights, parts, partial}, Body::kSharedBytes);
  if (partial) grid.each(op.rows * op.outputs, JoinPartsBody{op, parts, partial});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
