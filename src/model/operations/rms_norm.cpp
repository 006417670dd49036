#include "model/operations/rms_norm.h"

#include "kernels/launch.h"
#include "model/operations/add.h"
#include "model/operations/compute.h"
#include "model/operations/ranks.h"

namespace lockstep {

void launch_rms_norm_backward(Context& ctx, const View& dx, const View& dy, const View& x, ParameterId w, float eps, std::int64_t heads, const View& onto) {
  RmsNormBackward backward{dx, {}, {}, true, dy, x, ctx.weight(w), ctx.batch().tape_rows().segment, eps, heads, onto};
  if (GradientSet* g = ctx.gradients()) backward.gradient = g->gradient(w), backward.bins = g->bins(w), backward.finish = g->finish_at_once();
  ctx.launch(&KernelTable::rms_norm_backward, backward);
}

namespace {
View by_head(const View& v, std::int64_t heads) { return heads == 1 || !v ? v : v.reshape(v.rows * heads, v.cols / heads); }

// Fills the norm from x alone.
auto norm_alone(Context& ctx, ParameterId w, float eps, std::int64_t heads) {
  return [&ctx, w, eps, heads](const View& to, std::span<const View> from) {
    ctx.launch(&KernelTable::rms_norm_forward, RmsNormForward{by_head(to, heads), by_head(from[0], heads), ctx.weight(w), eps});
  };
}

void record_norm(Context& ctx, Tensor& y, const Tensor& x, ParameterId w, float eps, std::int64_t heads) {
  ctx.record(y, {x}, [&ctx, w, eps, heads](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
    const View all = in[0];
    const Buffer onto = in.take_gradient(0);
    Buffer dx = ctx.allocate_tape(all.cols);
    launch_rms_norm_backward(ctx, by_head(dx.view(), heads), by_head(dy.view(), heads), by_head(all, heads), w, eps, heads, by_head(onto.view(), heads));
    return {dx};
  });
}

Tensor norm_of(Context& ctx, const Tensor& x, ParameterId w, float eps, std::int64_t heads) {
  Tensor y = ctx.output_like(x, x.view().cols);
  compute(ctx, y, {x}, norm_alone(ctx, w, eps, heads));
  record_norm(ctx, y, x, w, eps, heads);
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

SumAndNorm add_rms_norm(Context& ctx, const Tensor& left, const Tensor& right, ParameterId w, float eps) {
  const Tensor a = whole(ctx, left), b = whole(ctx, right);
  const std::int64_t cols = a.view().cols;
  SumAndNorm y{ctx.output_like(a, cols), ctx.output_like(a, cols)};
  ctx.launch(&KernelTable::rms_norm_forward, RmsNormForward{y.normed.view(), a.view(), ctx.weight(w), eps, b.view(), y.sum.view()});
  finish_add(ctx, y.sum, a, b);
  if (ctx.tape()) save_recompute(ctx, y.normed, {y.sum}, norm_alone(ctx, w, eps, 1));
  record_norm(ctx, y.normed, y.sum, w, eps, 1);
  ctx.observe("rms_norm", y.normed.view(), w);
  return y;
}

}  // namespace lockstep
