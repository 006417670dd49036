#include "rl/trajectory/policy_datum.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

PolicyDatum policy_datum(const Chain& chain, float temperature) {
  PolicyDatum datum;
  // Row i predicts token i + 1: the columns begin one token behind the tokens.
  const auto predict = [&](std::int32_t target, float weight, float logprob) {
    datum.targets.push_back(target);
    datum.weights.push_back(weight);
    datum.old_logprobs.push_back(logprob);
  };
  bool cut = false;
  for (const Turn& turn : chain.turns) {
    if ((datum.tokens.empty() && turn.shown.empty()) || turn.tokens.empty())
      fail(ErrorCode::invalid_argument, "a rollout has {} prompt tokens and {} of its own, at least 1 of each is needed", turn.shown.size(),
           turn.tokens.size());
    for (const std::int32_t id : turn.shown) {
      if (!datum.tokens.empty()) predict(-1, 0.0f, 0.0f);
      datum.tokens.push_back(id);
    }
    for (std::size_t i = 0; i < turn.tokens.size(); ++i) {
      if (turn.trained) predict(turn.tokens[i], 1.0f, turn.sampling_logprobs[i]);
      else predict(-1, 0.0f, 0.0f);
      datum.tokens.push_back(turn.tokens[i]);
    }
    cut = cut || std::any_of(turn.kept_tokens.begin(), turn.kept_tokens.end(), [](const KeptTokens& kept) { return kept.cut(); });
  }
  if (datum.tokens.empty()) fail(ErrorCode::invalid_argument, "a chain has 0 turns, at least 1 is needed");
  std::size_t rows = datum.targets.size();
  while (rows > 0 && datum.targets[rows - 1] < 0) --rows;  // behind the last trained token nothing needs computing
  if (rows == 0) fail(ErrorCode::invalid_argument, "a chain has 0 trained tokens, at least 1 is needed");
  datum.tokens.resize(rows);
  for (std::vector<float>* column : {&datum.weights, &datum.old_logprobs, &datum.advantages}) column->resize(rows);
  datum.targets.resize(rows);
  datum.temperature = temperature;
  if (!cut) return datum;
  std::vector<KeptTokens>& kept = datum.kept_tokens;
  for (const Turn& turn : chain.turns) {
    kept.resize(kept.size() + turn.shown.size());
    if (turn.kept_tokens.empty() || !turn.trained) kept.resize(kept.size() + turn.tokens.size());
    else kept.insert(kept.end(), turn.kept_tokens.begin(), turn.kept_tokens.end());
  }
  kept.erase(kept.begin());
  kept.resize(rows);
  return datum;
}

}  // namespace lockstep
