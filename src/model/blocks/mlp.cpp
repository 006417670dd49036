#include "model/blocks/mlp.h"

#include "model/operations/linear.h"
#include "model/operations/swiglu.h"

namespace lockstep {

Mlp::Mlp(Manifest& m, const std::string& prefix, const Settings& s) : cost_{3 * s.hidden * s.width, kValuesOfWidth * s.width} {
  gate_ = m.matrix(prefix + s.traits.gate, s.width, s.hidden);
  up_ = m.matrix(prefix + s.traits.up, s.width, s.hidden);
  down_ = m.matrix(prefix + s.traits.down, s.hidden, s.width);
  m.split(ParameterSplit::outputs, {gate_, up_});
  m.split(ParameterSplit::inputs, {down_});
  m.adapt(AdapterKind::mlp, {gate_, up_, down_});
}

// The order of the two products fixes, in reverse, the order in which h's gradient is summed.
Tensor Mlp::forward(Context& ctx, const Tensor& h) const {
  const Tensor up = linear(ctx, h, up_), gate = linear(ctx, h, gate_);
  return linear(ctx, swiglu(ctx, gate, up), down_);
}

}  // namespace lockstep
