// The CUDA form of rms_norm.h: a group of 16 threads per row; for the gain's gradient one thread per column.
#include "kernels/cuda/prelude.h"
#include "kernels/row_tools.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr int kRowsABlock = 8;

// 1 / sqrt(mean(x^2) + eps) of one row; all threads of the group.
LOCKSTEP_DEVICE float row_scale(const Thread& t, const float* x, std::int64_t n, float eps) {
  const auto value = [x](std::int64_t i) { return x[i]; };
  const float mean = group_dot16(t, n, value, value) / static_cast<float>(n);
  return 1.0f / square_root(mean + eps);
}

struct RmsNormForwardBody {
  static constexpr bool kCooperates = true;
  RmsNormForward op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block() * kRowsABlock + t.group(), n = op.x.cols;
    if (row >= op.x.rows) return;
    const float* x = floats(op.x) + row * op.x.stride;
    float* y = floats(op.y) + row * op.y.stride;
    const float r = row_scale(t, x, n, op.eps);
    for (std::int64_t i = t.lane(); i < n; i += kLanes) y[i] = (x[i] * r) * load_stored(op.w, i);
  }
};

struct RmsNormBackwardBody {
  static constexpr bool kCooperates = true;
  RmsNormBackward op;
  float* scale;  // [T]: r of each row, for the gain's gradient
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t row = t.block() * kRowsABlock + t.group(), n = op.x.cols;
    if (row >= op.x.rows) return;
    const float* x = floats(op.x) + row * op.x.stride;
    const float* dy = floats(op.dy) + row * op.dy.stride;
    float* dx = floats(op.dx) + row * op.dx.stride;
    const float r = row_scale(t, x, n, op.eps);
    if (t.lane() == 0) scale[row] = r;
    const auto g = [&](std::int64_t i) { return dy[i] * load_stored(op.w, i); };
    const auto normalised = [&](std::int64_t i) { return x[i] * r; };
    const float mean = group_dot16(t, n, g, normalised) / static_cast<float>(n);
    for (std::int64_t i = t.lane(); i < n; i += kLanes) dx[i] = r * (g(i) - normalised(i) * mean);
  }
};

struct RmsNormGainBody {
  RmsNormBackward op;
  const float* scale;
  bool finish;
  LOCKSTEP_DEVICE void operator()(std::int64_t i) const {
    const std::int32_t* segment = ints(op.segment);
    BinGroup<Lane> bins(op.bins, 0, i / kLanes, i % kLanes);
    ColumnChains<Lane> chains;
    for (std::int64_t t = 0; t < op.x.rows;) {
      const std::int64_t begin = t;
      chains.clear();
      for (; t < op.x.rows && segment[t / op.heads] == segment[begin / op.heads]; ++t)
        chains.add(t - begin, Lane{floats(op.dy)[t * op.dy.stride + i]}, Lane{floats(op.x)[t * op.x.stride + i] * scale[t]});
      bins.deposit(chains.sum());
    }
    bins.close(finish, finish ? floats(op.gradient) + i : nullptr);
  }
};
}  // namespace

void launch(const RmsNormForward& op, Grid& grid) { grid.run((op.x.rows + kRowsABlock - 1) / kRowsABlock, kRowsABlock * kLanes, RmsNormForwardBody{op}); }

void launch(const RmsNormBackward& op, Grid& grid) {
  float* scale = grid.scratch<float>(0, op.x.rows);
  grid.run((op.x.rows + kRowsABlock - 1) / kRowsABlock, kRowsABlock * kLanes, RmsNormBackwardBody{op, scale});
  if (op.gradient || op.bins) grid.each(op.x.cols, RmsNormGainBody{op, scale, op.finish || !op.bins});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
