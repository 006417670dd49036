// The CUDA form of elementwise.h: one thread per element.
#include "kernels/cuda/prelude.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct AddBody {
  Add op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.y.cols, i = item % op.y.cols;
    floats(op.y)[t * op.y.stride + i] = floats(op.a)[t * op.a.stride + i] + floats(op.b)[t * op.b.stride + i];
  }
};

struct ScaleBody {
  Scale op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.y.cols, i = item % op.y.cols;
    floats(op.y)[t * op.y.stride + i] = floats(op.x)[t * op.x.stride + i] * op.factor;
  }
};

// What a clamped swiglu computes from a gate and an up value.
struct ClampedGate {
  float gate, up, gained, s;  // up: u' + 1; gained: gain g'
  LOCKSTEP_DEVICE ClampedGate(float g, float u, float gain, float limit) {
    const float low = 0.0f - limit, high = u > limit ? limit : u;
    gate = g > limit ? limit : g;
    up = (low > high ? low : high) + 1.0f;
    gained = gain * gate;
    s = sigmoid_of(gained);
  }
};

struct SwigluForwardBody {
  SwigluForward op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.y.cols, i = item % op.y.cols;
    const float g = floats(op.gate)[t * op.gate.stride + i], u = floats(op.up)[t * op.up.stride + i];
    float& y = floats(op.y)[t * op.y.stride + i];
    if (op.limit > 0) {
      const ClampedGate c(g, u, op.gain, op.limit);
      y = (c.gate * c.s) * c.up;
      return;
    }
    y = (g * sigmoid_of(g)) * u;
  }
};

struct SwigluBackwardBody {
  SwigluBackward op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.dy.cols, i = item % op.dy.cols;
    const float g = floats(op.gate)[t * op.gate.stride + i], u = floats(op.up)[t * op.up.stride + i], d = floats(op.dy)[t * op.dy.stride + i];
    float &dup = floats(op.dup)[t * op.dup.stride + i], &dgate = floats(op.dgate)[t * op.dgate.stride + i];
    if (op.limit > 0) {
      const ClampedGate c(g, u, op.gain, op.limit);
      dup = u > op.limit || 0.0f - op.limit > u ? 0.0f : d * (c.gate * c.s);
      dgate = g > op.limit ? 0.0f : (d * c.up) * (c.s * fused(c.gained, 1.0f - c.s, 1.0f));
      return;
    }
    const float s = sigmoid_of(g);
    dup = d * (g * s);
    dgate = (d * u) * (s * fused(g, 1.0f - s, 1.0f));
  }
};
}  // namespace

void launch(const Add& op, Grid& grid) { grid.each(op.y.size(), AddBody{op}); }
void launch(const Scale& op, Grid& grid) { grid.each(op.y.size(), ScaleBody{op}); }
void launch(const SwigluForward& op, Grid& grid) { grid.each(op.y.size(), SwigluForwardBody{op}); }
void launch(const SwigluBackward& op, Grid& grid) { grid.each(op.dy.size(), SwigluBackwardBody{op}); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
