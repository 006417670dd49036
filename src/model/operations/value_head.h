// The value head (model/value_head.h): values of rows, their loss, and the backward down to the hidden state.
//   value_head(ctx, {.value = v, .target = t, .kind = ValueLoss::Kind::none}, head, bias, x, {}, nullptr, segment);
#pragma once
#include "kernels/value/value.h"
#include "model/adapter_rows.h"
#include "model/context.h"

namespace lockstep {

// v = x w^T (linear.h), with what the adapter of these rows adds, plus the bias; then the kernel value_loss, `loss` with its value and, for a
// gradient, its slope. With dx: dx = slope w, and the gradients of head, bias and adapter are deposited where the context and the adapter have
// some; `segment` is the rows'. bias -1: none.
void value_head(Context& ctx, const ValueLoss& loss, ParameterId head, ParameterId bias, const View& x, const View& dx, const AdapterRows* adapter,
                const View& segment);

}  // namespace lockstep
