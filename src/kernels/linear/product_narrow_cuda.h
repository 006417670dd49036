// The narrow tile of product_cuda.h: every weight is read once, for at most 8 rows.
#pragma once
#include "kernels/linear/product_items_cuda.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

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

template <int kRows, class Weights>
void launch_narrow(const ProductItems& op, const Weights& weights, Grid& grid) {
  const NarrowProductBody<kRows, Weights> body{{op}, weights};
  grid.run(op.row_tiles(kRows) * body.panel_tiles(), body.threads(), body, body.shared_bytes());
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
