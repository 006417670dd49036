#include "rl/grpo.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep {

bool all_equal(const std::vector<double>& rewards) {
  return std::all_of(rewards.begin(), rewards.end(), [&](double r) { return r == rewards.front(); });
}

std::vector<float> group_advantages(const std::vector<double>& rewards, AdvantageKind kind) {
  if (rewards.size() < 2) fail(ErrorCode::invalid_argument, "a group has {} rollouts, allowed are at least 2", rewards.size());
  std::vector<float> advantages(rewards.size(), 0.0f);
  if (all_equal(rewards)) return advantages;  // also where the mean is not exact
  const auto n = static_cast<double>(rewards.size());
  double sum = 0;
  for (const double r : rewards) sum += r;
  const double mean = sum / n;
  double squares = 0;
  for (const double r : rewards) squares += (r - mean) * (r - mean);
  const double deviation = std::sqrt(squares / (n - 1));
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    const double centred = rewards[i] - mean;
    advantages[i] = static_cast<float>(kind == AdvantageKind::group_normalised ? centred / (deviation + kAdvantageEps) : centred);
  }
  return advantages;
}

PolicyDatum policy_datum(const std::vector<std::int32_t>& prompt, const Rollout& rollout, float advantage) {
  if (prompt.empty() || rollout.tokens.empty())
    fail(ErrorCode::invalid_argument, "a rollout has {} prompt tokens and {} of its own, at least 1 of each is needed", prompt.size(),
         rollout.tokens.size());
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
    datum.advantages[first + i] = advantage;
    datum.old_logprobs[first + i] = rollout.sampling_logprobs[i];
  }
  return datum;
}

}  // namespace lockstep
