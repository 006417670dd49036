// The CUDA form of rms_norm.h: a group of 16 threads a row; for the gain's gradient a thread a column.
#include "kernels/cuda/prelude.h"

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
    const std::int32_t* segment = integers(op.segment);
    LaneBins bins(op.bins, 0, i / kLanes, static_cast<int>(i % kLanes));
    for (std::int64_t t = 0; t < op.x.rows;) {
      const std::int64_t begin = t;
      float chain[kLanes] = {};
      for (; t < op.x.rows && segment[t / op.heads] == segment[begin / op.heads]; ++t) {
        float& c = chain[(t - begin) % kLanes];
        c = fused(floats(op.dy)[t * op.dy.stride + i], floats(op.x)[t * op.x.stride + i] * scale[t], c);
      }
      for (int half = 8; half >= 1; half /= 2)
        for (int l = 0; l < half; ++l) chain[l] = chain[l] + chain[l + half];
      bins.deposit(chain[0]);
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
