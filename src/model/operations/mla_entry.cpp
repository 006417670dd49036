#include "model/operations/mla_entry.h"

#include "kernels/launch.h"
#include "model/operations/rms_norm.h"
#include "model/operations/rope.h"

namespace lockstep {

Tensor mla_entry(Context& ctx, const Tensor& kv, ParameterId norm, float eps, std::int64_t rotary) {
  const std::int64_t latent = ctx.parameter(norm).inputs;
  Tensor y = ctx.output_like(kv, latent + rotary);
  ctx.launch(&KernelTable::rms_norm_forward, RmsNormForward{y.view().column_range(0, latent), kv.view().column_range(0, latent), ctx.weight(norm), eps});
  const RopeColumns key{1, rotary, 0, latent, 0, latent, 0};
  launch_rope(ctx, y.view(), kv.view(), key);
  ctx.observe("mla_entry", y.view(), norm);
  ctx.record(y, {kv}, [&ctx, norm, eps, latent, key](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
    const View all = in[0];
    Buffer dkv = ctx.allocate_tape(all.cols);
    launch_rms_norm_backward(ctx, dkv.view().column_range(0, latent), dy.view().column_range(0, latent), all.column_range(0, latent), norm, eps, 1);
    launch_rope_backward(ctx, dkv.view(), dy.view(), key);
    return {dkv};
  });
  return y;
}

}  // namespace lockstep
