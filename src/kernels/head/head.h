// The fused language-model head: logits, log-probability, entropy, loss and gradient in one pass over chunks of rows; the
// matrix [tokens, vocabulary] never stands in memory whole.
//   logits[t, v] = chain(G(K)) (as linear.h); vocabulary cut into G(V) leaves (form.h): in a leaf m = max, s = dot16 lanes and
//   tree of exp(z - m) (terms added as 1 * e); leaves join pairwise: m = max(m1, m2), s = fma(s1, exp(m1 - m), s2 * exp(m2 - m));
//   lse = m + log(s); logprob = z[target] - lse. A row's bits depend on the row alone.
//   entropy = lse - sum p z: per leaf dot16(exp(z - lse), z), leaves joined pairwise (plain adds).
// head_loss adds the loss of each row and, for training, the gradient:
//   cross_entropy: loss = -(weight * logprob);  dlogprob = -weight
//   policy (PPO clip, losses.md 2.2): l = clamp(logprob - old, -20, 20), ratio = exp(l); unclipped = ratio * A,
//     clipped = clamp(ratio, 1 - clip_low, 1 + clip_high) * A; loss = -(weight * min(unclipped, clipped));
//     dlogprob = -((weight * A) * ratio) where the unclipped branch is the smaller or equal (and l inside the clamp), else 0.
//   -x is 0 - x throughout.
//   `weight` carries mask and normaliser (1 / number of trained tokens). dz = dlogprob * (onehot - p);
//   p = exp(z - lse); dx = chain(G(V)) over v of dz W; dW = one chain per segment over its rows, deposited (as linear.h).
// Rows with target < 0 are not scored: logprob, entropy and loss +0, no gradient, not looked at. A scored row whose lse is not
// finite is marked in flags (bit 2) and its logprob is NaN.
// How the rows are cut into chunks changes no bit.
#pragma once
#include "kernels/linear/linear.h"

namespace lockstep {

enum class LossKind : std::int32_t { none, cross_entropy, policy };

struct HeadLoss {
  View logprob{}, entropy{};  // f32 [T, 1]; entropy may be none
  View loss{};              // f32 [T, 1] or none
  View flags{};             // i32 [T, 1], or-ed
  View x{};                 // f32 [T, K]
  PackedWeight w{};         // vocabulary x K
  View target{};            // i32 [T, 1]
  bool round_input_bf16 = false;
  LossKind kind = LossKind::none;
  View weight{}, advantage{}, old_logprob{};  // f32 [T, 1]
  float clip_low = 0.2f, clip_high = 0.28f;
  // Gradient, or none for scoring:
  View dx{};                // f32 [T, K], overwritten
  View log_sum{}, slope{};  // f32 [T, 1], for HeadWeight
  View logits_chunk{};      // workspace f32 [at least 1, V]
};
struct HeadWeight {
  View gradient{}, bins{};  // of w, as in linear.h
  bool finish = true;
  View x{};                 // f32 [T, K]
  PackedWeight w{};         // a rank's share: the tokens [first, first + outputs)
  std::int64_t first = 0;
  bool round_input_bf16 = false;
  View target{}, log_sum{}, slope{}, segment{};
  View table_dy{}, token{};  // of a tied table: f32 [T, K], the embedding's dy, and its i32 [T, 1]; or none
};
// Logits of chosen rows, for sampling: y[i] = logits of row index[i].
struct HeadLogits {
  View y{};      // f32 [n, V]
  View x{};      // f32 [T, K]
  View index{};  // i32 [n, 1]
  PackedWeight w{};
  bool round_input_bf16 = false;
};

}  // namespace lockstep
