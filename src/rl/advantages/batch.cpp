// Estimators that are whitened over a batch: mean 0 and variance 1 over its trained tokens.
#include <cmath>
#include <utility>

#include "rl/advantages/advantages.h"

namespace lockstep {
namespace {
constexpr double kVarianceEps = 1e-8;

// The variance is the sample's (tokens - 1), as verl's masked_whiten. Values that are all equal become +0.
Advantages whitened(const std::vector<RewardGroup>& groups, Advantages values) {
  double tokens = 0, sum = 0;
  bool differ = false;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < values[g].size(); ++i) {
      const auto n = static_cast<double>(groups[g].tokens[i]);
      tokens += n;
      sum += n * values[g][i];
      differ = differ || values[g][i] != values[0][0];
    }
  }
  const double mean = differ ? sum / tokens : 0.0;
  double squares = 0;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < values[g].size(); ++i) {
      values[g][i] = differ ? values[g][i] - mean : 0.0;
      squares += static_cast<double>(groups[g].tokens[i]) * (values[g][i] * values[g][i]);
    }
  if (!differ) return values;
  const double deviation = std::sqrt(squares / (tokens - 1) + kVarianceEps);
  for (std::vector<double>& group : values)
    for (double& v : group) v /= deviation;
  return values;
}
}  // namespace

// REINFORCE++ (Hu et al. 2025) without discount and without a KL term in the reward.
Advantages batch_whitened(const std::vector<RewardGroup>& groups) {
  Advantages rewards;
  for (const RewardGroup& group : groups) rewards.push_back(group.rewards);
  return whitened(groups, std::move(rewards));
}

// REINFORCE++-baseline.
Advantages mean_only_whitened(const std::vector<RewardGroup>& groups) { return whitened(groups, mean_only(groups)); }

}  // namespace lockstep
