// Generalised advantage estimation over chains (Schulman et al., arXiv 1506.02438): advantages and returns of each trained token of a rollout, from a
// critic's values and the rewards.
//   const GaeBatch e = estimate_gae(rollouts, {.lambda = 0.95}); e.advantages[r][c][i], e.returns[r][c][i]
// A rollout is chains of tokens in order of time, one for each context window. The successor of a trained token is the rollout's next trained token
// in time, in whichever chain. Tokens that the policy did not write (tool results, prompts, a summary's prompt) are skipped, and their rewards count
// for the last trained token before them, or for the first one. A sub-agent's chain comes between the two parts of its parent's chain.
// With terminal chains each context window ends with the rollout's reward instead, and nothing is carried to the next.
// Everything is computed in double, in the order of docs/numerics.md ("Advantages of a critic"). Pure functions.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

struct GaeToken {
  bool trained = true;
  double value = 0;   // of the state before it; of trained ones
  double reward = 0;  // that came with it
};
struct GaeChain {
  std::vector<GaeToken> tokens;
  std::size_t window = 0;  // chains of one context window have the same number: a parent's parts, around its sub-agent's
};
struct GaeRollout {
  std::vector<GaeChain> chains;     // in time
  double reward = 0;                // at its end, beside those of its tokens
  std::optional<double> bootstrap;  // of a rollout that was cut off: the value of the state after its last token
};

struct GaeSettings {
  double gamma = 1, lambda = 1;
  std::optional<double> critic_lambda;  // of the returns; none: lambda
  double length_alpha = 0;              // above 0: the policy's lambda is 1 - 1 / (alpha n), n trained tokens (VAPO, arXiv 2504.05118)
  bool carry = true;                    // a chain's last token is followed by the next chain; else every window ends with the rollout's reward
  bool whiten = true;                   // advantages get mean 0 and variance 1 over the batch's trained tokens
};
// Errors invalid_argument: gamma, a lambda outside 0 to 1, an alpha below 0.
void check(const GaeSettings& settings);

// By rollout, chain and token; 0 where a token is not trained.
using GaeNumbers = std::vector<std::vector<std::vector<double>>>;
struct GaeBatch {
  GaeNumbers advantages;
  GaeNumbers returns;  // targets of the critic's values: value + the critic's own advantage, never whitened
};
// Errors invalid_argument: settings, a value or a reward that is not finite.
GaeBatch estimate_gae(const std::vector<GaeRollout>& rollouts, const GaeSettings& settings);

}  // namespace lockstep
