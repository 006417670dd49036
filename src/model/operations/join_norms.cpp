#include "model/operations/join_norms.h"

#include "kernels/launch.h"
#include "model/operations/compute.h"
#include "model/operations/ranks.h"
#include "model/operations/rms_norm.h"

namespace lockstep {

Tensor join_norms(Context& ctx, const Tensor& left, const Tensor& right, ParameterId left_norm, ParameterId right_norm, float eps) {
  const Tensor a = whole(ctx, left), b = whole(ctx, right);
  const std::int64_t of_a = a.view().cols, of_b = b.view().cols;
  Tensor y = ctx.output_like(a, of_a + of_b);
  compute(ctx, y, {a, b}, [&ctx, left_norm, right_norm, eps, of_a, of_b](const View& to, std::span<const View> from) {
    ctx.launch(&KernelTable::rms_norm_forward, RmsNormForward{to.column_range(0, of_a), from[0], ctx.weight(left_norm), eps});
    ctx.launch(&KernelTable::rms_norm_forward, RmsNormForward{to.column_range(of_a, of_b), from[1], ctx.weight(right_norm), eps});
  });
  ctx.observe("join_norms", y.view(), left_norm);
  ctx.record(y, {a, b}, [&ctx, left_norm, right_norm, eps, of_a, of_b](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
    Buffer da = ctx.allocate_tape(of_a), db = ctx.allocate_tape(of_b);
    launch_rms_norm_backward(ctx, da.view(), dy.view().column_range(0, of_a), in[0], left_norm, eps, 1);
    launch_rms_norm_backward(ctx, db.view(), dy.view().column_range(of_a, of_b), in[1], right_norm, eps, 1);
    return {da, db};
  });
  return y;
}

}  // namespace lockstep
