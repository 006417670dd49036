// SwiGLU experts over the routed rows, combined by the router's weights.
//   Tensor y = experts(ctx, h, routing, {.gate = gate, .up = up, .down = down});   // [T, h]
// Each rank computes and sums the experts of its groups; the ranks' sums are joined as the groups are. Of more ranks than groups each has some experts, whose
// outputs are summed where the row is (model/expert_pairs.h). Where ranks have rows of their own
// (ForwardOptions::dealt_rows), rows travel to the ranks with their experts and the ranks' sums come back, so each rank's rows are `x`, and slots are those of
// all ranks' rows. Each expert's matrices may have adapters and biases (linear.h); adapters where all ranks have the same rows.
#pragma once
#include "model/operations/route.h"
#include "model/operations/swiglu.h"

namespace lockstep {

struct ExpertWeights {
  ParameterId gate = -1, up = -1, down = -1;
  ParameterId gate_bias = -1, up_bias = -1, down_bias = -1;  // -1: none
  SwigluRule rule = {};
};

Tensor experts(Context& ctx, const Tensor& x, const Routing& routing, const ExpertWeights& weights);

}  // namespace lockstep
