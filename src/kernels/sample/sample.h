// Sampling by Gumbel noise (docs/numerics.md section 6): a function of (logits, parameters, seed, position) alone.
//   z = logits / T; top-k on (z descending, id ascending); top-p keeps the shortest prefix in that order whose ascending-rank
//   fp32 chain of exp(z - max) reaches p * total (total over the top-k set, same chain). Arg-max of z + g over the kept set, ties to the
//   lower id; g = -log(-log u), u = (top 23 bits + 1/2) 2^-23 of Philox4x32-10, key = seed, counter = (id / 4, position, sample,
//   stream sampling), word id mod 4; largest g at u = 1 - 2^-24. T = 0: arg-max of the logits.
//   raw_logprob: log-softmax of the logits (head.h's order, so the bits equal the trainer's); sampling_logprob: log-softmax of z
//   over the kept set: z[token] - (max + log(sum)) with sum the same ascending-rank chain up to the last kept token, or, where
//   the whole vocabulary is kept, head.h's order over z (T = 1: the raw one's bits). T = 0: the raw one.
// min-p, after top-p: kept are the ranks before the first whose exp(z - max) is below min_p; the kept set's sum ends there.
// `adjusted` (adjust.h) takes the logits' place in z and in the arg-max of T = 0; raw_logprob stays the logits'.
// A mask is applied before everything else: all of the above then works on the allowed logits, gathered in ascending order of id
// (head.h's order over as many numbers as are allowed), so both log-probabilities are over the allowed set. A row without an
// allowed token marks flags bit 4, yields token -1 and log-probabilities +0.
// T <= 0 counts as 0; top_k <= 0 or >= V, and top_p >= 1, filter nothing; the first token is always kept.
// A row's `chosen` token is returned instead of a drawn one, with the log-probabilities it would have if drawn; at T = 0 it is ignored.
// A token is skipped only when it provably cannot win. A row whose log-sum-exp (of the logits, or of z where T is so small that
// z overflows) is not finite marks flags bit 3, yields token -1 and log-probabilities NaN.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct Sample {
  View token{};                            // i32 [n, 1]
  View raw_logprob{}, sampling_logprob{};  // f32 [n, 1]
  View flags{};                            // i32 [n, 1], or-ed
  View logits{};                           // f32 [n, V]
  View temperature{}, top_p{};             // f32 [n, 1]
  View top_k{};                            // i32 [n, 1]; 0: all
  View seed{};                             // i32 [n, 2]: low and high word
  View min_p{};                            // f32 [n, 1] or none
  View adjusted{};                         // f32 [a, V] or none
  View adjusted_row{};                     // i32 [n, 1] beside it: row of `adjusted`, -1: the logits
  View mask{};                             // i32 [m, ceil(V / 32)] or none: bit t % 32 of word t / 32 allows token t
  View mask_row{};                         // i32 [n, 1] beside it: row of `mask`, -1: all tokens
  View sample{}, position{};               // i32 [n, 1]: which of the request's samples; position of the token being sampled
  int maximum_leaves = 8;                  // of the vocabulary leaves
  View kept{};                             // i32 [k, 2 + ceil(V / 32)] or none: the kept set (base/kept_tokens.h): order, 0 where nothing was cut; how
                                           // many tokens; then their ids ascending, or a bitmap if they are more than ceil(V / 32)
  View kept_row{};                         // i32 [n, 1] beside it: the row of `kept` to write, -1: none
  View stream{};                           // i32 [n, 1] or none: the RandomStream of a row's noise; none: sampling
  View chosen{};                           // i32 [n, 1] or none: a token of the kept set to return as if it had been drawn, -1: one is drawn
};

}  // namespace lockstep
