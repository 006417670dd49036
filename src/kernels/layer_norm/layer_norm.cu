// The CUDA form of layer_norm.h: a group of 16 threads per row; for the gradients of gain and bias one thread per column.
#include "kernels/cuda/prelude.h"
#include "kernels/row_tools.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr int kLayerNormRows = 8;  // of a block

struct LayerNormStatistics {
  float mean, r;  // r = 1 / sqrt(var + eps)
};

// Mean and r of one row; all threads of the group call it.
LOCKSTEP_DEVICE LayerNormStatistics statistics_of(const Thread& t, const float* x, std::int64_t n, float eps) {
  const float count = static_cast<float>(n);
  const float mean = group_dot16(
                         t, n, [&](std::int64_t i) { return x[i]; }, [](std::int64_t) { return 1.0f; }) /
                     count;
  const auto centred = [&](std::int64_t i) { return x[i] - mean; };
  const float variance = group_dot16(t, n, centred, centred) / count;
  return {mean, 1.0f / square_root(variance + eps)};
}

struct LayerNormForwardBody {
  static constexpr bool kCooperates = true;
  LayerNormForward op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block() * kLayerNormRows + t.group(), n = op.x.cols;
    if (row >= op.x.rows) return;
    const float* x = floats(op.x) + row * op.x.stride;
    float* y = floats(op.y) + row * op.y.stride;
    const LayerNormStatistics s = statistics_of(t, x, n, op.eps);
    for (std::int64_t i = t.lane(); i < n; i += kLanes) y[i] = fused((x[i] - s.mean) * s.r, load_stored(op.w, i), load_stored(op.b, i));
  }
};

struct LayerNormBackwardBody {
  static constexpr bool kCooperates = true;
  LayerNormBackward op;
  LayerNormStatistics* statistics;  // [T], for the gradients of gain and bias
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block() * kLayerNormRows + t.group(), n = op.x.cols;
    if (row >= op.x.rows) return;
    const float* x = floats(op.x) + row * op.x.stride;
    const LayerNormStatistics s = statistics_of(t, x, n, op.eps);
    if (t.lane() == 0) statistics[row] = s;
    if (!op.dx) return;
    const float* dy = floats(op.dy) + row * op.dy.stride;
    float* dx = floats(op.dx) + row * op.dx.stride;
    const float count = static_cast<float>(n);
    const auto g = [&](std::int64_t i) { return dy[i] * load_stored(op.w, i); };
    const auto normalised = [&](std::int64_t i) { return (x[i] - s.mean) * s.r; };
    const float mean_g = group_dot16(t, n, g, [](std::int64_t) { return 1.0f; }) / count;
    const float mean_gn = group_dot16(t, n, g, normalised) / count;
    for (std::int64_t i = t.lane(); i < n; i += kLanes) dx[i] = s.r * ((g(i) - mean_g) - normalised(i) * mean_gn);
  }
};

// Column i of the gradient of the gain (or, `of_bias`, of the bias).
struct LayerNormGradientBody {
  LayerNormBackward op;
  const LayerNormStatistics* statistics;
  View bins_view, gradient;
  bool of_bias, finish;
  LOCKSTEP_DEVICE void operator()(std::int64_t i) const {
    const std::int32_t* segment = ints(op.segment);
    BinGroup<Lane> bins(bins_view, 0, i / kLanes, i % kLanes);
    ColumnChains<Lane> chains;
    for (std::int64_t t = 0; t < op.x.rows;) {
      const std::int64_t begin = t;
      chains.clear();
      for (; t < op.x.rows && segment[t] == segment[begin]; ++t) {
        const float c = floats(op.x)[t * op.x.stride + i] - statistics[t].mean;
        chains.add(t - begin, Lane{floats(op.dy)[t * op.dy.stride + i]}, Lane{of_bias ? 1.0f : c * statistics[t].r});
      }
      bins.deposit(chains.sum());
    }
    bins.close(finish, finish ? floats(gradient) + i : nullptr);
  }
};
}  // namespace

void launch(const LayerNormForward& op, Grid& grid) {
  grid.run((op.x.rows + kLayerNormRows - 1) / kLayerNormRows, kLayerNormRows * kLanes, LayerNormForwardBody{op});
}

void launch(const LayerNormBackward& op, Grid& grid) {
  auto* statistics = grid.scratch<LayerNormStatistics>(0, op.x.rows);
  grid.run((op.x.rows + kLayerNormRows - 1) / kLayerNormRows, kLayerNormRows * kLanes, LayerNormBackwardBody{op, statistics});
  if (!op.gradient_w && !op.bins_w) return;
  const bool finish = op.finish || !op.bins_w;
  grid.each(op.x.cols, LayerNormGradientBody{op, statistics, op.bins_w, op.gradient_w, false, finish});
  grid.each(op.x.cols, LayerNormGradientBody{op, statistics, op.bins_b, op.gradient_b, true, finish});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
