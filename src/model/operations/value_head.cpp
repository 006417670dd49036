#include "model/operations/value_head.h"

#include "kernels/launch.h"
#include "model/operations/low_rank.h"

namespace lockstep {

void value_head(Context& ctx, const ValueLoss& loss, ParameterId head, ParameterId bias, const View& x, const View& dx, const AdapterRows* adapter,
                const View& segment) {
  LinearForward forward{loss.value, x, ctx.packed(head)};
  forward.round_input_bf16 = ctx.profile().bf16_activations;
  ctx.launch(&KernelTable::linear_forward, forward);
  AdapterPair pair{};
  Buffer u;
  if (adapter && adapter_pair(*adapter->weights, head, ctx.profile(), pair)) {
    u = ctx.allocate(DType::f32, x.rows, pair.rank());
    ctx.launch(&KernelTable::linear_forward, adapter_down(u.view(), x, pair));
    ctx.launch(&KernelTable::linear_forward, adapter_up(loss.value, u.view(), pair));
  }
  if (bias >= 0) ctx.launch(&KernelTable::bias_add, BiasAdd{loss.value, ctx.weight(bias)});
  ctx.launch(&KernelTable::value_loss, loss);
  if (!dx) return;
  ctx.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dx, loss.slope, ctx.packed(head)});
  if (u) {
    const Buffer du = ctx.allocate(DType::f32, x.rows, pair.rank());
    ctx.launch(&KernelTable::linear_backward_input, adapter_down_gradient(du.view(), loss.slope, pair));
    ctx.launch(&KernelTable::linear_backward_input, adapter_input_gradient(dx, du.view(), pair));
    if (adapter->gradients) {
      ctx.launch(&KernelTable::linear_backward_weight, adapter_weight_gradient(*adapter->gradients, pair.a_id, pair.a, du.view(), x, segment));
      ctx.launch(&KernelTable::linear_backward_weight, adapter_weight_gradient(*adapter->gradients, pair.b_id, pair.b, loss.slope, u.view(), segment));
    }
  }
  GradientSet* g = ctx.gradients();
  if (!g) return;
  LinearBackwardWeight weight;
  weight.gradient = g->gradient(head);
  weight.bins = g->bins(head);
  weight.finish = g->finish_at_once();
  weight.dy = loss.slope;
  weight.x = x;
  weight.w = ctx.packed(head);
  weight.segment = segment;
  ctx.launch(&KernelTable::linear_backward_weight, weight);
  if (bias >= 0) ctx.launch(&KernelTable::bias_backward, BiasBackward{g->gradient(bias), g->bins(bias), g->finish_at_once(), loss.slope, segment});
}

}  // namespace lockstep
