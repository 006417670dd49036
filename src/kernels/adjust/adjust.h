// Penalties and biases on logits (docs/numerics.md section 6). A row has a list of entries, at most one for a token:
//   x = logit; where the token was seen (prompt or generated): x = x / repetition if x > 0, else x * repetition;
//   x = fma(-count, frequency, x), count: how often it was generated; where count > 0: x = x - presence; x = x + bias.
// Tokens without an entry keep their logit's bits. Rows are independent; y must not overlap the logits (the unadjusted ones are
// needed for raw log-probabilities).
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct AdjustLogits {
  View y{};                                    // f32 [m, V]
  View logits{};                               // f32 [n, V]
  View row{};                                  // i32 [m, 1]: row of the logits
  View begin{};                                // i32 [m + 1, 1]: entries of row i are begin[i] .. begin[i + 1]
  View repetition{}, presence{}, frequency{};  // f32 [m, 1]
  View token{}, count{}, seen{};               // i32 [entries, 1]
  View bias{};                                 // f32 [entries, 1]
};

}  // namespace lockstep
