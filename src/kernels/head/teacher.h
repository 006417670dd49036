// A teacher of the head's rows: another model over the same vocabulary, given by its hidden states and its own head, to whose distribution p the student's q is
// moved (LossKind::divergence). Both models' logits of a chunk of rows stand in memory at once, never those of all rows.
//   z, y: logits of student and teacher, each in linear.h's order. a = z - lse(z), b = y - lse(y), both log-sums in head.h's order; q = exp(a), p = exp(b).
//   reverse         D = sum q (a - b)                           dz = (w q) ((a - b) - D)
//   forward         D = sum p (b - a)                           dz = w (q - p)
//   jensen_shannon  D = 0.5 (A + B), A = sum q s, B = sum p t   dz = ((0.5 w) q) (s - A)
//                   with d = b - a, r = log(fma(0.5, exp(-|d|), 0.5)): s = (0 - max(d, 0)) - r and t = min(d, 0) - r, the logarithms of q and p over
//                   their mean
// A sum is in each of the G(V) leaves dot16(probability, its term), leaves joined pairwise by plain adds. The row's loss is w D, its slope w, w the weight of
// its target, which is scored as ever (logprob, entropy). A row that is not scored, or has the weight 0, has dz +0. A scored row of which lse(y) or D is not
// finite is marked in flags (bit 2). dx and dW follow from dz as in head.h; the teacher gets no gradient. How the rows are cut into chunks changes no bit,
// nor does a vocabulary that ranks share along its leaves (head_shard.h).
#pragma once
#include "kernels/head/loss_parameters.h"
#include "kernels/linear/linear.h"

namespace lockstep {

// How many sums a divergence has. Always inlined (numerics/form.h).
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline int divergence_sums(Divergence kind) { return kind == Divergence::jensen_shannon ? 2 : 1; }

struct HeadTeacher {
  View x{};          // f32 [T, inputs of w]; none: there is no teacher
  PackedWeight w{};  // vocabulary x those, stored as the student's head
  bool round_input_bf16 = false;
  Divergence divergence = Divergence::reverse;
  View log_sum{}, centre{};  // f32 [T, 1]: lse(y), and the D or A of dz; head_loss writes them, head_weight reads them
  View logits_chunk{};       // workspace of head_loss, of the shape of HeadLoss::logits_chunk
  LOCKSTEP_EVERYWHERE explicit operator bool() const { return static_cast<bool>(x); }
};

}  // namespace lockstep
