#include "model/operations/swiglu.h"

#include "kernels/launch.h"
#include "model/operations/compute.h"
#include "model/operations/ranks.h"

namespace lockstep {

Tensor swiglu_of_slots(Context& ctx, const Tensor& gate, const Tensor& up, const SwigluRule& rule) {
  Tensor y = ctx.output_like(gate, gate.view().cols);
  y.split = gate.split;
  compute(ctx, y, {gate, up}, [&ctx, rule](const View& to, std::span<const View> in) {
    ctx.launch(&KernelTable::swiglu_forward, SwigluForward{to, in[0], in[1], rule.gain, rule.limit});
  });
  ctx.record(y, {gate, up}, [&ctx, rule](const Buffer& dy, const RecordedInputs& in) -> InputGradients {
    const View all_gate = in[0], all_up = in[1];
    Buffer dgate = ctx.allocate(DType::f32, all_gate.rows, all_gate.cols), dup = ctx.allocate(DType::f32, all_gate.rows, all_gate.cols);
    ctx.launch(&KernelTable::swiglu_backward, SwigluBackward{dgate.view(), dup.view(), dy.view(), all_gate, all_up, rule.gain, rule.limit});
    return {dgate, dup};
  });
  return y;
}

Tensor swiglu(Context& ctx, const Tensor& gate, const Tensor& up) {
  Tensor y = swiglu_of_slots(ctx, gate, cut(ctx, up, gate.split));
  ctx.observe("swiglu", y.view());
  return y;
}

}  // namespace lockstep
