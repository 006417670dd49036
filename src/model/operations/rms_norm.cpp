#include "model/operations/rms_norm.h"

#include "kernels/launch.h"
#include "model/operations/compute.h"
#include "model/operations/ranks.h"

namespace lockstep {

void launch_rms_norm_backward(Context& ctx, const View& dx, const View& dy, const View& x, ParameterId w, float eps, std::int64_t heads) {
  RmsNormBackward backward{dx, {}, {}, true, dy, x, ctx.weight(w), ctx.batch().tape_rows().segment, eps, heads};
  if (GradientSet* g = ctx.gradients()) backward.gradient = g->gradient(w), backward.bins = g->bins(w), backward.finish = g->finish_at_once();
  ctx.launch(&KernelTable::rms_norm_backward, backward);
}

namespace {
Tensor norm_of(Context& ctx, const Tensor& x, ParameterId w, float eps, std::int64_t heads) {
  const auto by_head = [heads](const View& v) { return heads == 1 ? v : v.reshape(v.rows * heads, v.cols / heads); };
  Tensor y = ctx.output_like(x, x.view().cols);
  compute(ctx, y, {x}, [&ctx, w, eps, by_head](const View& to, std::span<const View> from) {
    ctx.launch(&KernelTable::rms_norm_forward, RmsNormForward{by_head(to), by_head(from[0]), ctx.weight(w), eps});
  });
  ctx.record(y, {x}, [&ctx, w, eps, heads, by_head](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
    const View all = in[0];
    Buffer dx = ctx.allocate_tape(all.cols);
    launch_rms_norm_backward(ctx, by_head(dx.view()), by_head(dy.view()), by_head(all), w, eps, heads);
    return {dx};
  });
  return y;
}
}  // namespace

Tensor rms_norm(Context& ctx, const Tensor& x, ParameterId w, float eps) {
  Tensor y = norm_of(ctx, whole(ctx, x), w, eps, 1);
  ctx.observe("rms_norm", y.view(), w);
  return y;
}

Tensor rms_norm_heads(Context& ctx, const Tensor& x, ParameterId w, float eps) {
  const Tensor all = whole(ctx, x);
  Tensor y = norm_of(ctx, all, w, eps, all.view().cols / ctx.parameter(w).inputs);
  ctx.observe("rms_norm_heads", y.view(), w);
  return y;
}

}  // namespace lockstep
