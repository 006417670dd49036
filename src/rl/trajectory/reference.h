// The reference solution of a problem as a rollout, for supervised fine-tuning: the episode played with its own reference answers (rl/episode.h). Its
// turns have no log-probabilities. Pure functions.
//   const Rollout r = reference_rollout(environment, problem, tokenizer, end, {.compact_at = 72});
#pragma once
#include "rl/trajectory/play.h"
#include "runs/chat_data.h"

namespace lockstep {

// Each turn is the reference's tokens, followed by `end` unless they contain it. Errors: those of the environment and of Play; internal when the
// episode does not end.
Rollout reference_rollout(const Environment& environment, const Problem& problem, const Tokenizer& tokenizer, std::int32_t end, const PlaySettings& settings);

// A chain's tokens, with weight 1 on those that the policy wrote.
WeightedTokens weighted_tokens(const Chain& chain);

}  // namespace lockstep
