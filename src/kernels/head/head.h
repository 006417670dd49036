// The fused language-model head: logits, log-probability, entropy, loss and gradient in one pass over chunks of rows; the
// matrix [tokens, vocabulary] never stands in memory whole.
//   logits[t, v] = chain(G(K)) (as linear.h); vocabulary cut into G(V) leaves (form.h): in a leaf m = max, s = dot16 lanes and
//   tree of exp(z - m) (terms added as 1 * e); leaves join pairwise: m = max(m1, m2), s = fma(s1, exp(m1 - m), s2 * exp(m2 - m));
//   lse = m + log(s); logprob = z[target] - lse. A row's bits depend on the row alone.
//   entropy = lse - sum p z: per leaf dot16(exp(z - lse), z), leaves joined pairwise (plain adds).
// head_loss adds the loss of each target and, for training, the gradient. A row has K targets (K = 1 unless a distribution is learnt),
// each with a loss and a slope, its derivative by the target's log-probability: loss_parameters.h names the kinds, row_loss.h has them.
//   `weight` carries mask and normaliser (1 / number of trained tokens). With p = exp(z - lse):
//   one target in the row: dz = slope * (onehot - p); several: dz = total * (0 - p), total the chain of plain adds of their slopes,
//   then + slope at each target, in order. An entropy bonus e = entropy_coefficient * weight makes it
//   fma(e * p, (z - lse) + entropy, dz), and the loss less by e * entropy.
//   dx = chain(G(V)) over v of dz W; dW = one chain per segment over its rows, deposited (as linear.h).
// A target < 0 is not scored: logprob and loss +0, no gradient; a row of such targets alone is not looked at and has entropy +0. Targets
// that are not scored change no bit of the others. A scored row whose lse is not finite is marked in flags (bit 2), its logprob is NaN.
// How the rows are cut into chunks changes no bit. Rows of another distribution than the softmax of their logits: row_distribution.h. Rows whose loss is
// the divergence from a teacher's distribution: teacher.h; they have one target, and are of no other distribution.
#pragma once
#include "kernels/head/objective.h"
#include "kernels/head/row_distribution.h"
#include "kernels/head/teacher.h"
#include "kernels/linear/linear.h"

namespace lockstep {

struct HeadLoss {
  View logprob{};    // f32 [T, K]
  View entropy{};    // f32 [T, 1] or none
  View loss{};       // f32 [T, K] or none
  View marks{};      // i32 [T, K] (LossMark) or none
  View flags{};      // i32 [T, 1], or-ed
  View x{};          // f32 [T, inputs]
  PackedWeight w{};  // vocabulary x inputs
  View target{};     // i32 [T, K]
  bool round_input_bf16 = false;
  Objective objective{};
  RowDistribution distribution{};
  // Gradient, or none for scoring:
  View dx{};             // f32 [T, inputs], overwritten
  View log_sum{};        // f32 [T, 1], for HeadWeight
  View slope{};          // f32 [T, K], for HeadWeight; there where dx is
  View entropy_slope{};  // f32 [T, 1], for HeadWeight; there, and entropy too, where the objective has an entropy bonus
  View logits_chunk{};   // workspace f32 [at least 1, V]
  HeadTeacher teacher{};
};
struct HeadWeight {
  View gradient{}, bins{};  // of w, as in linear.h
  bool finish = true;
  View x{};          // f32 [T, K]
  PackedWeight w{};  // a rank's share: the tokens [first, first + outputs)
  std::int64_t first = 0;
  bool round_input_bf16 = false;
  View target{}, log_sum{}, slope{}, segment{};
  View entropy{}, entropy_slope{};  // with an entropy bonus, else none
  View table_dy{}, token{};         // of a tied table: f32 [T, K], the embedding's dy, and its i32 [T, 1]; or none
  RowDistribution distribution{};
  HeadTeacher teacher{};  // its w: the same tokens as w
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
