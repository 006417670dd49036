// SwiGLU: silu(gate) * up, element by element, on a rank's own columns or on rows that are expert slots; or the clamped form of gpt_oss.
//   Tensor h = swiglu(ctx, linear(ctx, x, gate), linear(ctx, x, up));
#pragma once
#include "model/context.h"

namespace lockstep {

// The clamped form (kernels/elementwise/elementwise.h); limit 0: plain.
struct SwigluRule {
  float gain = 1, limit = 0;
};

Tensor swiglu(Context& ctx, const Tensor& gate, const Tensor& up);
// The same of rows that are slots of experts, which those show to an observer themselves (experts.h).
Tensor swiglu_of_slots(Context& ctx, const Tensor& gate, const Tensor& up, const SwigluRule& rule = {});

}  // namespace lockstep
