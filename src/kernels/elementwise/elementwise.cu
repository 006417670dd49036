// The CUDA form of elementwise.h: a thread an element.
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

struct SwigluForwardBody {
  SwigluForward op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.y.cols, i = item % op.y.cols;
    const float g = floats(op.gate)[t * op.gate.stride + i];
    floats(op.y)[t * op.y.stride + i] = (g * sigmoid_of(g)) * floats(op.up)[t * op.up.stride + i];
  }
};

struct SwigluBackwardBody {
  SwigluBackward op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.dy.cols, i = item % op.dy.cols;
    const float g = floats(op.gate)[t * op.gate.stride + i], u = floats(op.up)[t * op.up.stride + i], d = floats(op.dy)[t * op.dy.stride + i];
    const float s = sigmoid_of(g);
    floats(op.dup)[t * op.dup.stride + i] = d * (g * s);
    floats(op.dgate)[t * op.dgate.stride + i] = (d * u) * (s * fused(g, 1.0f - s, 1.0f));
  }
};
}  // namespace

void launch(const Add& op, Grid& grid) { grid.each(op.y.size(), AddBody{op}); }
void launch(const SwigluForward& op, Grid& grid) { grid.each(op.y.size(), SwigluForwardBody{op}); }
void launch(const SwigluBackward& op, Grid& grid) { grid.each(op.dy.size(), SwigluBackwardBody{op}); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
