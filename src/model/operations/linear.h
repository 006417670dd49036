// Products with a weight: y = x W^T, in the forms that families use. By the weight's split ranks make columns of y (its gradient dx is
// then a sum over all outputs, joined along its leaves) or leaves of y's sum (joined in forward). Adapters add y += B (s (A x)).
//   Tensor q = linear(ctx, h, q_proj);
#pragma once
#include "model/operations/low_rank.h"

namespace lockstep {

Tensor linear(Context& ctx, const Tensor& x, ParameterId w);

// Rows that are slots of experts, for a product by expert: item g has rows offsets[g] .. offsets[g + 1].
struct SlotRows {
  View offsets, row_of, tape_offsets, tape_row_of, tape_source;
};
// The same of rows that are slots. Not observed.
Tensor linear_of_slots(Context& ctx, const Tensor& x, ParameterId w, const SlotRows& slots);

// A product with each item of a weight: item g reads columns g * x_step.. and writes columns g * y_step.. (heads), or has rows of its own
// (experts). Not observed; x is cut as the weight is.
struct ProductItems {
  std::int64_t x_step = 0, y_step = 0;
  SlotRows slots = {};
};
Tensor product(Context& ctx, const Tensor& x, ParameterId w, const ProductItems& items, const AdapterRule& adapters);

// Where the gradient of w goes, over rows in the batch's segments; steps and offsets are the caller's.
LinearBackwardWeight weight_gradient(Context& ctx, ParameterId w, const View& dy, const View& x);

}  // namespace lockstep
