// Rejection sampling of draft tokens (docs/numerics.md section 6), on the host in double. A draft token with probability q under the draft and p
// under the model is accepted with probability min(1, p / q); otherwise the token is the arg-max of log max(p - q, 0) plus noise. So tokens have the
// model's distribution, whatever q is. A draft without a distribution counts as q = 1. Acceptance and noise use random streams of their own, keyed by
// position. Pure functions.
//   const TokenLaw p = token_law(logits, 0.8f, kept); const std::int32_t token = verified(p, guess.token, guess.law.get(), sampling, position);
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/kept_tokens.h"
#include "engine/request.h"

namespace lockstep {

// A distribution over tokens: probabilities in the order of `ids`, or of the vocabulary when `ids` is empty.
struct TokenLaw {
  std::vector<std::int32_t> ids;  // ascending
  std::vector<float> chances;

  double chance_of(std::int32_t token) const;
};

// The distribution of a row's kept tokens at a temperature above 0, from adjusted logits where there are adjustments.
TokenLaw token_law(std::span<const float> logits, float temperature, const KeptTokens& kept);

// The uniform number in [0, 1) for accepting the token at this position.
double acceptance_draw(const SamplingParameters& sampling, std::int64_t position);
// `q` null: a point mass.
bool takes_guess(const TokenLaw& p, std::int32_t token, const TokenLaw* q, double draw);
// The token drawn in place of a rejected one.
std::int32_t residual_draw(const TokenLaw& p, std::int32_t token, const TokenLaw* q, const SamplingParameters& sampling, std::int64_t position);
// The token at this position: the draft's, or another.
std::int32_t verified(const TokenLaw& p, std::int32_t token, const TokenLaw* q, const SamplingParameters& sampling, std::int64_t position);

}  // namespace lockstep
