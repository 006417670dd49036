#include "rl/trajectory/reference.h"

#include "base/error.h"

namespace lockstep {

Rollout reference_rollout(const Environment& environment, const Problem& problem, const Tokenizer& tokenizer, std::int32_t end, const PlaySettings& settings) {
  Play play(environment, problem, tokenizer, settings);
  if (play.prompt().empty()) fail(ErrorCode::invalid_argument, "'prompt' is empty; allowed is at least one token");
  while (!play.over()) {
    Turn turn;
    turn.tokens = tokenizer.encode(play.reference(), false);
    if (turn.tokens.empty() || turn.tokens.back() != end) turn.tokens.push_back(end);
    turn.ended = true;
    play.take(std::move(turn));
  }
  if (!play.rollout().ended) fail(ErrorCode::internal, "the reference of '{}' has {} turns and no end", problem.prompt, play.rollout().turns());
  return play.take_rollout();
}

WeightedTokens weighted_tokens(const Chain& chain) {
  WeightedTokens all;
  for (const Turn& turn : chain.turns) {
    all.tokens.insert(all.tokens.end(), turn.shown.begin(), turn.shown.end());
    all.weights.resize(all.tokens.size(), 0.0f);
    all.tokens.insert(all.tokens.end(), turn.tokens.begin(), turn.tokens.end());
    all.weights.resize(all.tokens.size(), 1.0f);
  }
  return all;
}

}  // namespace lockstep
