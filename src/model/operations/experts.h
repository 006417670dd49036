// SwiGLU experts over the routed rows, combined. Each rank has the experts of its groups and adds up those; the ranks' sums join as the
// groups do. Adapters stand on each expert's matrices (linear.h).
//   Tensor y = experts(ctx, h, routing, gate, up, down);   // [T, h]
#pragma once
#include "model/operations/route.h"

namespace lockstep {

Tensor experts(Context& ctx, const Tensor& x, const Routing& routing, ParameterId gate, ParameterId up, ParameterId down);

}  // namespace lockstep
