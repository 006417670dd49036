// The likeliest tokens of a row, with their log-softmax over the logits: (logit descending, id ascending), -0 equals +0.
// The log-sum is in head.h's order over the whole row, or, with a mask, over the allowed logits as sample.h gathers them, so the
// log-probability of a token here has the bits of its raw_logprob there.
// Places beyond `count`, and beyond the tokens allowed, hold id -1 and log-probability +0; so does a whole row whose log-sum-exp
// is not finite (sample.h and head.h flag it). Rows are independent.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct TopTokens {
  View id{};        // i32 [m, K]
  View logprob{};   // f32 [m, K]
  View logits{};    // f32 [n, V]
  View row{};       // i32 [m, 1]: row of the logits
  View count{};     // i32 [m, 1]: 0 to K
  View mask{};      // i32 [masks, ceil(V / 32)] or none: bit t % 32 of word t / 32 allows token t
  View mask_row{};  // i32 [m, 1], -1: all tokens; none when there is no mask
  int maximum_leaves = 8;
};

}  // namespace lockstep
