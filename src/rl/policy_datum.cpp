#include "rl/policy_datum.h"

#include <algorithm>

#include "base/error.h"

namespace lockstep {

PolicyDatum policy_datum(const std::vector<std::int32_t>& prompt, const Rollout& rollout, const std::vector<float>& advantages) {
  if (prompt.empty() || rollout.tokens.empty())
    fail(ErrorCode::invalid_argument, "a rollout has {} prompt tokens and {} of its own, at least 1 of each is needed", prompt.size(), rollout.tokens.size());
  if (!advantages.empty() && advantages.size() != rollout.tokens.size())
    fail(ErrorCode::invalid_argument, "a rollout has {} tokens and {} advantages, allowed are equal numbers", rollout.tokens.size(), advantages.size());
  PolicyDatum datum;
  datum.tokens = prompt;
  datum.tokens.insert(datum.tokens.end(), rollout.tokens.begin(), rollout.tokens.end() - 1);
  const std::size_t rows = datum.tokens.size(), first = prompt.size() - 1;
  datum.targets.assign(rows, -1);
  datum.weights.assign(rows, 0.0f);
  datum.advantages.assign(rows, 0.0f);
  datum.old_logprobs.assign(rows, 0.0f);
  for (std::size_t i = 0; i < rollout.tokens.size(); ++i) {
    datum.targets[first + i] = rollout.tokens[i];
    datum.weights[first + i] = 1.0f;
    if (!advantages.empty()) datum.advantages[first + i] = advantages[i];
    datum.old_logprobs[first + i] = rollout.sampling_logprobs[i];
  }
  datum.temperature = rollout.temperature;
  if (std::any_of(rollout.kept_tokens.begin(), rollout.kept_tokens.end(), [](const KeptTokens& kept) { return kept.cut(); })) {
    datum.kept_tokens.resize(first);
    datum.kept_tokens.insert(datum.kept_tokens.end(), rollout.kept_tokens.begin(), rollout.kept_tokens.end());
  }
  return datum;
}

}  // namespace lockstep
