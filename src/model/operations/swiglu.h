// silu(gate) * up, element by element: on whatever columns a rank has, or on rows that are slots of experts.
//   Tensor h = swiglu(ctx, linear(ctx, x, gate), linear(ctx, x, up));
#pragma once
#include "model/context.h"

namespace lockstep {

Tensor swiglu(Context& ctx, const Tensor& gate, const Tensor& up);
// The same of rows that are slots of experts, which those show to an observer themselves (experts.h).
Tensor swiglu_of_slots(Context& ctx, const Tensor& gate, const Tensor& up);

}  // namespace lockstep
