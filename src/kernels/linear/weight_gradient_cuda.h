// The CUDA form of a weight's gradient, dy^T x by segments: one block per tile of 64 outputs x 64 inputs of a weight, iterating over the rows of its
// item; a thread has 4 x 4 elements, each with its current segment's chain and its accumulator.
#pragma once
#include "kernels/linear/product_items_cuda.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

// Of a weight that has no gradient beside its product's.
struct NothingMore {
  struct Output {};
  LOCKSTEP_DEVICE Output output(std::int64_t) const { return {}; }
  template <class Bins>
  LOCKSTEP_DEVICE void deposit(const Output&, std::int64_t, Bins&) const {}
};

// More: what else is deposited. more.output(n) finds what an output has, once for its inputs; more.deposit(that, k, bins) deposits it.
template <class More>
struct WeightGradientBody {
  static constexpr bool kCooperates = true;
  static constexpr int kThreads = 256, kTile = 64, kOwn = 4, kStep = 16, kLine = kTile + 4;
  static constexpr int kFetched = kStep * kTile / kThreads;
  static constexpr std::size_t kSharedBytes = (2 * kStep * kLine + kStep) * sizeof(float);
  using Bins = AccumulatorVec<Lane>;
  LinearBackwardWeight op;
  std::int64_t panels;
  bool finish;
  More more;

  LOCKSTEP_EVERYWHERE static std::int64_t tiles(std::int64_t n) { return (n + kTile - 1) / kTile; }

  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t K = op.w.inputs, k_tiles = tiles(K), n_tiles = tiles(panels * kLanes);
    const std::int64_t item = t.block() / (n_tiles * k_tiles), n_begin = t.block() / k_tiles % n_tiles * kTile, k_begin = t.block() % k_tiles * kTile;
    const std::int64_t row_begin = op.offsets ? ints(op.offsets)[item] : 0;
    const std::int64_t row_end = !op.offsets ? op.dy.rows : op.ends ? ints(op.ends)[item] : ints(op.offsets)[item + 1];
    const float* dy = floats(op.dy) + item * op.y_step;
    const float* x = floats(op.x) + item * op.x_step;
    float* dy_lines = t.shared<float>();  // [kStep, kLine] each
    float* x_lines = dy_lines + kStep * kLine;
    auto* segments = reinterpret_cast<std::int32_t*>(x_lines + kStep * kLine);  // of the step's rows

    // Element (j, i): output n_begin + lane + 16 j, input k_begin + 4 group + i.
    float sum[kOwn][kOwn];
    Bins bins[kOwn][kOwn];
    const auto each = [&](const auto& f) {
      LOCKSTEP_UNROLL
      for (int j = 0; j < kOwn; ++j) LOCKSTEP_UNROLL
      for (int i = 0; i < kOwn; ++i) f(j, i);
    };
    const auto each_place = [&](const auto& f) {
      each([&](int j, int i) {
        const std::int64_t panel = n_begin / kLanes + j, k = k_begin + t.group() * kOwn + i;
        if (panel < panels && k < K) f(j, i, (item * panels + panel) * K + k);
      });
    };
    each([&](int j, int i) { sum[j][i] = 0.0f, bins[j][i] = Bins::zero(); });
    if (op.bins) each_place([&](int j, int i, std::int64_t at) { bins[j][i] = Bins::load(device_pointer<double>(op.bins) + at * Bins::kStorage + t.lane()); });

    int deposits = 0;
    const auto deposit = [&] {
      each([&](int j, int i) {
        bins[j][i].deposit(Lane{sum[j][i]});
        sum[j][i] = 0.0f;
      });
      if (++deposits < kDepositsBeforeCarry) return;
      each([&](int j, int i) { bins[j][i].normalise(); });
      deposits = 0;
    };
    float next_dy[kFetched], next_x[kFetched];
    std::int32_t next_segment = 0, segment = 0;
    const auto fetch = [&](std::int64_t step) {
      LOCKSTEP_UNROLL
      for (int f = 0; f < kFetched; ++f) {
        const std::int64_t row = step + (t.index() + f * kThreads) / kTile, column = t.index() % kTile;
        next_dy[f] = row < row_end && n_begin + column < op.w.outputs ? dy[row * op.dy.stride + n_begin + column] : 0.0f;  // padding is +0
        next_x[f] = row < row_end && k_begin + column < K ? x[row * op.x.stride + k_begin + column] : 0.0f;
      }
      const std::int64_t row = step + t.index();
      if (t.index() < kStep && row < row_end) next_segment = ints(op.segment)[op.row_of ? ints(op.row_of)[row] : row];
    };
    if (row_begin < row_end) fetch(row_begin);
    for (std::int64_t step = row_begin; step < row_end; step += kStep) {
      t.sync();
      LOCKSTEP_UNROLL
      for (int f = 0; f < kFetched; ++f) {
        const int at = (t.index() + f * kThreads) / kTile * kLine + t.index() % kTile;
        dy_lines[at] = next_dy[f];
        x_lines[at] = next_x[f];
      }
      if (t.index() < kStep) segments[t.index()] = next_segment;
      t.sync();
      if (step + kStep < row_end) fetch(step + kStep);
      const int count = static_cast<int>(row_end - step < kStep ? row_end - step : kStep);
      for (int r = 0; r < count; ++r) {
        if (segments[r] != segment || (step == row_begin && r == 0)) {
          if (step != row_begin || r > 0) deposit();
          segment = segments[r];
        }
        const FourFloats values = *reinterpret_cast<const FourFloats*>(x_lines + r * kLine + t.group() * kOwn);
        float d[kOwn];
        LOCKSTEP_UNROLL
        for (int j = 0; j < kOwn; ++j) d[j] = dy_lines[r * kLine + j * kLanes + t.lane()];
        each([&](int j, int i) { sum[j][i] = fused(values.at[i], d[j], sum[j][i]); });
      }
    }
    if (row_begin < row_end) deposit();
    LOCKSTEP_UNROLL
    for (int j = 0; j < kOwn; ++j) {
      const std::int64_t n = n_begin + j * kLanes + t.lane();
      if (n >= op.w.outputs) continue;
      const auto its_own = more.output(n);
      LOCKSTEP_UNROLL
      for (int i = 0; i < kOwn; ++i)
        if (const std::int64_t k = k_begin + t.group() * kOwn + i; k < K) more.deposit(its_own, k, bins[j][i]);
    }
    each_place([&](int j, int i, std::int64_t at) {
      Bins& total = bins[j][i];
      total.normalise();
      if (finish) floats(op.gradient)[at * kLanes + t.lane()] = total.total().x;
      if (op.bins) (finish ? Bins::zero() : total).store(device_pointer<double>(op.bins) + at * Bins::kStorage + t.lane());
    });
  }
};

template <class More>
void launch_weight_gradient(const LinearBackwardWeight& op, const More& more, Grid& grid) {
  using Body = WeightGradientBody<More>;
  const std::int64_t panels = op.w.panels();
  grid.run(op.w.count * Body::tiles(panels * kLanes) * Body::tiles(op.w.inputs), Body::kThreads, Body{op, panels, op.finish || !op.bins, more},
           Body::kSharedBytes);
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
