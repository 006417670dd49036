#include "model/operations/layer_norm.h"

#include "kernels/launch.h"
#include "model/operations/ranks.h"

namespace lockstep {

Tensor layer_norm(Context& ctx, const Tensor& input, ParameterId w, ParameterId b, float eps) {
  const Tensor x = whole(ctx, input);
  Tensor y = ctx.output_like(x, x.view().cols);
  ctx.launch(&KernelTable::layer_norm_forward, LayerNormForward{y.view(), x.view(), ctx.weight(w), ctx.weight(b), eps});
  ctx.observe("layer_norm", y.view(), w);
  ctx.record(y, {x}, [&ctx, w, b, eps](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
    GradientSet& g = *ctx.gradients();  // only the indexer uses it, and with frozen weights no gradient reaches it
    const View all = in[0];
    Buffer dx = ctx.allocate_tape(all.cols);
    ctx.launch(&KernelTable::layer_norm_backward, LayerNormBackward{dx.view(), g.gradient(w), g.gradient(b), g.bins(w), g.bins(b), g.finish_at_once(),
                                                                    dy.view(), all, ctx.weight(w), ctx.batch().tape_rows().segment, eps});
    return {dx};
  });
  return y;
}

}  // namespace lockstep
