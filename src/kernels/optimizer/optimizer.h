// The optimizer step and what it needs, over flat packed parameters (padding is zero and stays zero).
//   square_sum: sum of g^2 (in double, exact products) through the order-free accumulator -> one double's worth, as fp32
//   sqrt in `norm`; any NaN, infinity or overflow (an element of 2^20.5 or more, a sum of 2^44 or more) makes the norm NaN.
//   Elements below 2^-48.5 count nothing. Traced: by value, hashed as a wrapping sum over the elements. Where ranks own parts of the
//   gradients, each leaves its accumulator in `sum`, and one more call adds up those of all in `parts`: exact.
//   adamw (Loshchilov & Hutter), per element: g' = g * clip; m = fma(beta1, m, (1 - beta1) * g'); v = fma(beta2, v, ((1 - beta2) * g') * g');
//   update = (m / bias1) / (sqrt(v / bias2) + eps); master' = master - lr * fma(weight_decay, master, update);
//   the compute copy is master' rounded as the profile says. clip = min(1, max_norm / norm) (1 when max_norm is 0,
//   NaN when the norm is, so that the caller sees it in the step's result). 1 - beta is rounded to fp32. The views of one call have the same size, no
//   gaps.
//   bias1 = 1 - beta1^step, bias2 likewise, computed on the host in double, rounded to fp32.
//   finish_bins: accumulators -> fp32 gradient (all of a tensor), bins emptied.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct SquareSum {
  View norm;                    // f32 [1, 1]: sqrt of the sum; or none
  std::vector<View> gradients;  // f32, packed, each flat
  View parts{};                 // bins [ranks, 16]: sums to add; or none
  View sum{};                   // bins [1, 16]: the sum itself (in lane 0, normalised); or none
};
struct AdamW {
  View master, m, v;    // f32 flat; updated in place (next version's master may be another buffer: master_out)
  View master_out;      // f32 flat
  View compute_out;     // f32 or bf16 flat: next version's compute copy; none when master_out is it
  View gradient, norm;  // norm: f32 [1, 1] on the device
  float learning_rate = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0, bias1 = 1, bias2 = 1, max_norm = 0;
};
struct FinishBins {
  View gradient;  // f32 flat, a multiple of 16 elements (panels) or a row-major table with `row` elements per row
  View bins;
  std::int64_t row = 0;  // 0: packed; else the elements of a row (bins are laid out in ceil(row / 16) groups a row)
};

}  // namespace lockstep
