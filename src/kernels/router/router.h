// The router: which experts a row uses, and their weights, from scores that are sigmoids (GLM, DeepSeek-V3, MiniMax) or a softmax (Qwen3): fp32
// throughout.
//   sigmoid: s = sigmoid(logits); choice = s + bias, or s where no bias is given.
//   softmax: choice = logits (+ bias where one is given): the logits have the order of the softmax, without its rounding.
//   groups > 1: experts form groups of E / groups; a group's score is the sum of its two largest choices (largest + second); the kept_groups
//   largest scores stay (value descending, group ascending, -0 equals +0, NaN lowest), the choices of all other groups become -infinity.
//   Chosen are the k largest choices (value descending, expert ascending, -0 equals +0), emitted in ascending expert id. A NaN choice marks
//   the row in `flags` (bit 1) and counts as lowest.
//   sigmoid: w = s[chosen]; if normalise: w = w / (sum + 1e-20), sum an ascending chain of plain adds from +0 in ascending expert id.
//   softmax: over the chosen experts if normalise (the others' share cancels), else over all: m the largest logit (the earliest of equals),
//   e = exp(logit - m), sum an ascending chain of plain adds of e from +0 in ascending expert id; w = e / sum.
//   Then w = w * scaling (also when it is 1).
//   Where a row's experts are given (`forced`), they replace the k largest, and all else is as above: sum and backward are over these
//   experts, in ascending order.
//   backward: no gradient through the choice, the groups or the bias. Softmax: d the ascending fma chain fma(dw_j, w^_j, d) over the chosen,
//   w^ = e / sum; dlogit = (scaling * w^) * (dw - d) on the experts of the sum, where dw of one that is not chosen is +0; +0 elsewhere.
//   Sigmoid, normalised: ds = scaling * (dw - sum(dw_j * s_j / S)) / S, the sum
//   ascending fma chain fma(dw_j, s_j / S, sum), S = sum + 1e-20; else ds = scaling * dw; dlogit = (ds * s) * (1 - s) on the
//   chosen, +0 elsewhere.
// router_load counts, per expert, the rows that chose it (integers, exact), added to `load`.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct RouterForward {
  View expert;  // i32 [T, k]
  View weight;  // f32 [T, k]
  View flags;   // i32 [T, 1], or-ed; or none
  View logits;  // f32 [T, E]
  View bias;    // f32 [1, E], never rounded; or none
  bool normalise = true;
  float scaling = 1.0f;
  View forced = {};  // i32 [T, k], distinct in a row; -1 in the first place: the row is routed. Or none
  bool softmax = false;
  std::int64_t groups = 1, kept_groups = 1;  // groups divides E; with several, each has two experts or more and k fit into those kept
};
struct RouterBackward {
  View dlogits;  // f32 [T, E], overwritten
  View dweight;  // f32 [T, k]
  View expert, logits;
  bool normalise = true;
  float scaling = 1.0f;
  bool softmax = false;
};
struct RouterLoad {
  View load;  // i32 [1, E]
  View expert;
};

}  // namespace lockstep
