// The sigmoid router with correction bias (GLM, DeepSeek-V3): fp32 throughout.
//   s = sigmoid(logits); choice = s + bias; the k largest choices (value descending, expert ascending, -0 equals +0);
//   emitted in ascending expert id; w = s[chosen]; if normalise: w = w / (sum + 1e-20), sum an ascending chain of plain adds
//   from +0 in ascending expert id; w = w * scaling (also when it is 1). A NaN choice marks the row in `flags` (bit 1) and counts as lowest.
//   Where a row's experts are given (`forced`), these are taken in the place of the largest, and all else is as above: the sum and the
//   backward are over the experts taken, in ascending order.
//   backward: no gradient through the choice or the bias; normalised: ds = scaling * (dw - sum(dw_j * s_j / S)) / S, the sum
//   ascending fma chain fma(dw_j, s_j / S, sum), S = sum + 1e-20; else ds = scaling * dw; dlogit = (ds * s) * (1 - s) on the
//   chosen, +0 elsewhere.
// router_load counts, per expert, the rows that chose it (integers, exact), added to `load`.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct RouterForward {
  View expert;   // i32 [T, k]
  View weight;   // f32 [T, k]
  View flags;    // i32 [T, 1], or-ed; or none
  View logits;   // f32 [T, E]
  View bias;     // f32 [1, E], never rounded
  bool normalise = true;
  float scaling = 1.0f;
  View forced = {};  // i32 [T, k], distinct in a row; -1 in the first place: the row is routed. Or none
};
struct RouterBackward {
  View dlogits;  // f32 [T, E], overwritten
  View dweight;  // f32 [T, k]
  View expert, logits;
  bool normalise = true;
  float scaling = 1.0f;
};
struct RouterLoad {
  View load;     // i32 [1, E]
  View expert;
};

}  // namespace lockstep
