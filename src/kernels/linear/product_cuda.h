// The CUDA products behind linear.h: y[t, n] = chain(G) over k of x[t, k] w[n, k], of any weight that stored_weights_cuda.h can read. Every
// output's sum is one thread's chain per leaf, so neither a tile's shape nor the choice of a tile changes a bit.
//   wide:    8 warps, kRows rows each, share a tile of 128 outputs in shared memory; a thread has kRows x 4 sums. For many rows.
//   narrow:  16 outputs x all leaves at once; a thread has one leaf of one output, of kRows rows. For few rows: every weight is read once.
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

  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t column_tiles = (op.outputs + kOutputs - 1) / kOutputs;
    const RowTile tile = row_tile(op, t.block() / column_tiles, kTileRows);
    if (tile.item < 0) return;
    const std::int64_t first_output = t.block() % column_tiles * kOutputs;
    const int row = t.index() / 32 * kRows, column = t.index() % 32 * 4;

    float sum[kRows * 4], next_weights[kWeights], next_inputs[kInputs];
    LeafTree<kRows * 4> tree;
    clear(sum);
    const std::int64_t leaf_size = op.leaf_size(), k_end = op.leaf_end * leaf_size;
    std::int64_t k = op.leaf_begin * leaf_size, leaf_stop = k + leaf_size;
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
      if (tile.begin + row + r < tile.end && first_output + column + c < op.outputs)
        op.output(tile.item, tile.begin + row + r, first_output + column + c, sum[r * 4 + c]);
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

// How blocks of narrow tiles are cut: `panels_a_block` panels, of each a group of 16 threads a leaf, each thread with a leaf of one output
// of kRows rows.
template <int kRows>
struct LeafGroups {
  static constexpr int kThreads = 128;
  ProductItems op;

  LOCKSTEP_EVERYWHERE int leaves() const { return op.own_leaves() > 0 ? op.own_leaves() : 1; }
  LOCKSTEP_EVERYWHERE int panels_a_block() const { return kThreads / kLanes > leaves() ? kThreads / kLanes / leaves() : 1; }
  LOCKSTEP_EVERYWHERE int threads() const { return panels_a_block() * leaves() * kLanes; }
  LOCKSTEP_EVERYWHERE std::int64_t panel_tiles() const { return (op.panels() + panels_a_block() - 1) / panels_a_block(); }
  LOCKSTEP_EVERYWHERE std::size_t sum_bytes() const { return static_cast<std::size_t>(threads() * kRows) * sizeof(float); }

  LOCKSTEP_DEVICE RowTile rows(const Thread& t) const { return row_tile(op, t.block() / panel_tiles(), kRows); }
  LOCKSTEP_DEVICE int leaf(const Thread& t) const { return t.group() % leaves(); }
  LOCKSTEP_DEVICE std::int64_t first_panel(const Thread& t) const { return t.block() % panel_tiles() * panels_a_block(); }
  // The group's panel; groups beyond the last panel read that and write nothing.
  LOCKSTEP_DEVICE std::int64_t panel(const Thread& t) const {
    const std::int64_t at = first_panel(t) + t.group() / leaves();
    return at < op.panels() ? at : op.panels() - 1;
  }
  // Joins the leaves of the block in `sums` (sum_bytes of shared memory) and writes the outputs. All threads call it.
  LOCKSTEP_DEVICE void join(const Thread& t, const RowTile& tile, const float (&sum)[kRows], float* sums) const {
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) sums[(t.group() * kRows + r) * kLanes + t.lane()] = sum[r];
    t.sync();
    for (int at = t.index(); at < panels_a_block() * kRows * kLanes; at += t.count()) {
      const int lane = at % kLanes, r = at / kLanes % kRows, p = at / kLanes / kRows;
      const std::int64_t n = (first_panel(t) + p) * kLanes + lane;
      if (tile.begin + r >= tile.end || n >= op.outputs) continue;
      LeafTree<1> tree;
      float total[1] = {0.0f};
      for (int l = 0; l < leaves(); ++l) {
        total[0] = sums[((p * leaves() + l) * kRows + r) * kLanes + lane];
        tree.join(total, l + 1 == leaves());
      }
      op.output(tile.item, tile.begin + r, n, total[0]);
    }
  }
};

template <int kRows, class Weights>
struct NarrowProductBody : LeafGroups<kRows> {
  static constexpr bool kCooperates = true;
  static constexpr int kStep = 64, kTogether = 8;  // inputs of a leaf in shared memory; weights of a thread under way at once
  using LeafGroups<kRows>::op;
  Weights weights;

  LOCKSTEP_EVERYWHERE std::size_t input_floats() const { return static_cast<std::size_t>(kRows * this->leaves() * kStep); }
  LOCKSTEP_EVERYWHERE std::size_t shared_bytes() const { return input_floats() * sizeof(float) + this->sum_bytes(); }

  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const RowTile tile = this->rows(t);
    if (tile.item < 0) return;
    const int leaves = this->leaves(), leaf = this->leaf(t);
    const std::int64_t panel = this->panel(t), leaf_size = op.own_leaves() > 0 ? op.leaf_size() : 0;
    float* inputs = t.shared<float>();  // [kRows, leaves, kStep]
    float sum[kRows];
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r] = 0.0f;
    for (std::int64_t step = 0; step < leaf_size; step += kStep) {
      const int count = static_cast<int>(leaf_size - step < kStep ? leaf_size - step : kStep);
      if (step > 0) t.sync();
      for (int at = t.index(); at < kRows * leaves * kStep; at += t.count()) {
        const int i = at % kStep, r = at / kStep / leaves;
        const std::int64_t k = (op.leaf_begin + at / kStep % leaves) * leaf_size + step + i;
        inputs[at] = i < count && tile.begin + r < tile.end ? op.input(tile.item, tile.begin + r, k) : 0.0f;
      }
      t.sync();
      const std::int64_t k = (op.leaf_begin + leaf) * leaf_size + step;
      const float* own = inputs + leaf * kStep;
      int i = 0;
      for (; i + kTogether <= count; i += kTogether) {
        float w[kTogether];
        LOCKSTEP_UNROLL
        for (int j = 0; j < kTogether; ++j) w[j] = weights(tile.item, panel, k + i + j, t.lane());
        LOCKSTEP_UNROLL
        for (int j = 0; j < kTogether; j += 4) LOCKSTEP_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const FourFloats four = *reinterpret_cast<const FourFloats*>(own + r * leaves * kStep + i + j);
          LOCKSTEP_UNROLL
          for (int l = 0; l < 4; ++l) sum[r] = fused(four.at[l], w[j + l], sum[r]);
        }
      }
      for (; i < count; ++i) {
        const float w = weights(tile.item, panel, k + i, t.lane());
        LOCKSTEP_UNROLL
        for (int r = 0; r < kRows; ++r) sum[r] = fused(own[r * leaves * kStep + i], w, sum[r]);
      }
    }
    this->join(t, tile, sum, inputs + input_floats());
  }
};

// Blocks that keep a GPU busy; to tests every shape of a tile matters, so a few are enough there.
#ifdef __CUDACC__
inline constexpr std::int64_t kBusyBlocks = 264;
#else
inline constexpr std::int64_t kBusyBlocks = 2;
#endif

template <int kRows, class Weights>
void launch_wide(const ProductItems& op, const Weights& weights, Grid& grid) {
  using Body = WideProductBody<kRows, Weights>;
  grid.run(op.row_tiles(Body::kTileRows) * ((op.outputs + Body::kOutputs - 1) / Body::kOutputs), Body::kThreads, Body{op, weights}, Body::kSharedBytes);
}
template <int kRows, class Weights>
void launch_narrow(const ProductItems& op, const Weights& weights, Grid& grid) {
  const NarrowProductBody<kRows, Weights> body{{op}, weights};
  grid.run(op.row_tiles(kRows) * body.panel_tiles(), body.threads(), body, body.shared_bytes());
}

// The largest tile that the rows of an item fill and whose blocks keep the GPU busy.
template <class Weights>
void launch_product(const ProductItems& op, const Weights& weights, Grid& grid) {
  if (op.rows == 0 || op.count == 0 || op.outputs == 0) return;
  const std::int64_t rows = op.offsets ? (op.rows + op.count - 1) / op.count : op.rows;  // of an item
  const auto fits = [&](std::int64_t tile) { return rows > tile / 2 && op.row_tiles(tile) * ((op.outputs + 127) / 128) >= kBusyBlocks; };
  if (fits(64)) return launch_wide<8>(op, weights, grid);
  if (fits(32)) return launch_wide<4>(op, weights, grid);
  if constexpr (Weights::kAcross) {
    launch_wide<2>(op, weights, grid);  // narrow tiles read neighbours of one input
  } else {
    if (fits(16)) launch_wide<2>(op, weights, grid);
    else if (rows == 1) launch_narrow<1>(op, weights, grid);
    else if (rows <= 4) launch_narrow<4>(op, weights, grid);
    else launch_narrow<8>(op, weights, grid);
  }
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
