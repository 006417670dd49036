// Of which distribution a row's log-probabilities are, where that is not the softmax of its logits: z = logits / temperature, over the tokens
// that were kept (base/kept_tokens.h). Then a training row has the bits of the sampler's sampling log-probability (kernels/sample/sample.h):
//   nothing kept            head.h's order over z
//   kept by id              head.h's order over as many numbers as are kept, gathered in ascending order of id
//   kept by rank            on (z descending, id ascending): max + log(sum), sum the ascending chain of plain adds of exp(z - max) from +0
// The entropy is over the same numbers, gathered by id, in head.h's order. The gradient of a logit is head.h's dz over the kept tokens, divided
// by the temperature, and +0 of tokens that were not kept. A temperature of 1 divides nothing. A row's targets are kept tokens.
#pragma once
#include "tensor/view.h"

namespace lockstep {

struct RowDistribution {
  View temperature{};                          // f32 [T, 1] or none: 1
  View kept{};                                 // i32 [T, 3] or none: 0, or KeptTokens::Order; first of the row's words; how many tokens are kept
  View kept_words{};                           // i32 [1, n] beside it: ids ascending, or a bitmap where these are fewer words
  std::int64_t vocabulary = 0, most_kept = 0;  // beside it: of the whole head; the most tokens that a row keeps
  RowDistribution row_range(std::int64_t begin, std::int64_t count) const {
    RowDistribution part = *this;
    if (temperature) part.temperature = temperature.row_range(begin, count);
    if (kept) part.kept = kept.row_range(begin, count);
    return part;
  }
};

}  // namespace lockstep
