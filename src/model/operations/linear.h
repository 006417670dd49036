// Linear layers: y = x W^T + b, with tensor-parallel splits and adapters.
//   Tensor q = linear(ctx, h, q_proj);
//   Tensor k = linear(ctx, h, k_proj, k_bias);
// A weight split by outputs: each rank computes columns of y, and in the backward the ranks' parts of dx are joined along its leaves. Split by
// inputs: each rank computes leaves of y's sum, joined in the forward. Adapters add y += B (s (A x)); a bias is added last, split as the outputs are.
#pragma once
#include "model/operations/low_rank.h"

namespace lockstep {

// `bias` -1: none.
Tensor linear(Context& ctx, const Tensor& x, ParameterId w, ParameterId bias = -1);

// Rows that are slots of experts, for a product by expert: item g has rows offsets[g] .. offsets[g + 1].
struct SlotRows {
  View offsets, row_of, tape_offsets, tape_row_of, tape_source;
  View slot_of = {};  // i32 [T, k]: the slots of each of the batch's rows
  View segment = {};  // Rows::segment of the rows of the tape that slots came from; none: those are the batch's
};
// The same for rows that are slots. Not observed.
Tensor linear_of_slots(Context& ctx, const Tensor& x, ParameterId w, const SlotRows& slots);
// y += each expert's own bias, in place: y is fresh from linear_of_slots. Not observed.
void add_bias_of_slots(Context& ctx, Tensor& y, ParameterId bias, const SlotRows& slots);

// A product with each item of a weight: item g reads columns g * x_step.. and writes columns g * y_step.. (heads), or has rows of its own
// (experts). Not observed; x is cut as the weight is.
struct ProductItems {
  std::int64_t x_step = 0, y_step = 0;
  SlotRows slots = {};
};
Tensor product(Context& ctx, const Tensor& x, ParameterId w, const ProductItems& items, const AdapterRule& adapters);

// The launch arguments for the gradient of w over the batch's segments; the caller sets steps and offsets.
LinearBackwardWeight weight_gradient(Context& ctx, ParameterId w, const View& dy, const View& x);

}  // namespace lockstep
