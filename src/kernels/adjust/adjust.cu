// The CUDA form of adjust.h: one block per row.
#include "kernels/cuda/prelude.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
constexpr int kAdjustThreads = 256;

// Each entry has a token of its own and reads the unadjusted logit, so entries need no order.
struct AdjustBody {
  static constexpr bool kCooperates = true;
  AdjustLogits op;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const auto number = [](const View& v, std::int64_t at) { return floats(v)[at * v.stride]; };
    const auto integer = [](const View& v, std::int64_t at) { return ints(v)[at * v.stride]; };
    const std::int64_t row = t.block();
    const float* logits = floats(op.logits) + integer(op.row, row) * op.logits.stride;
    float* y = floats(op.y) + row * op.y.stride;
    for (std::int64_t i = t.index(); i < op.y.cols; i += t.count()) y[i] = logits[i];
    t.sync();
    const float repetition = number(op.repetition, row), presence = number(op.presence, row), frequency = number(op.frequency, row);
    for (std::int64_t e = integer(op.begin, row) + t.index(); e < integer(op.begin, row + 1); e += t.count()) {
      const std::int32_t token = integer(op.token, e), count = integer(op.count, e);
      float x = logits[token];
      if (integer(op.seen, e)) x = x > 0.0f ? x / repetition : x * repetition;
      if (count > 0) x = fused(-static_cast<float>(count), frequency, x) - presence;
      y[token] = x + number(op.bias, e);
    }
  }
};
}  // namespace

void launch(const AdjustLogits& op, Grid& grid) { grid.run(op.y.rows, kAdjustThreads, AdjustBody{op}); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
