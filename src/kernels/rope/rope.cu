// The CUDA form of rope.h: one thread per pair of a head, and one per column that is copied.
#include "kernels/cuda/prelude.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct RopeBody {
  Rope op;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t pairs = op.rotary / 2, of_head = pairs + op.pass, i = item % of_head;
    const std::int64_t h = item / of_head % op.heads, t = item / of_head / op.heads;
    const float* x = floats(op.x) + t * op.x.stride + op.x_offset + h * op.x_step;
    float* y = floats(op.y) + t * op.y.stride + op.y_offset + h * op.y_step;
    if (i >= pairs) {
      y[op.rotary + i - pairs] = x[op.rotary + i - pairs];
      return;
    }
    const float* turn = floats(op.table) + ints(op.position)[t * op.position.stride] * op.table.stride;
    const std::int64_t first = op.half ? i : 2 * i, second = op.half ? pairs + i : 2 * i + 1;  // columns of the pair, in x and in the table
    const float c = turn[first], s = op.inverse ? -turn[second] : turn[second];
    const float a = x[first], b = x[second];  // both read before either is written: x may be y
    y[first] = fused(a, c, b * -s);
    y[second] = fused(b, c, a * s);
  }
};
}  // namespace

void launch(const Rope& op, Grid& grid) { grid.each(op.x.rows * op.heads * (op.rotary / 2 + op.pass), RopeBody{op}); }

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
