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

Advantages plain_rewards(const std::vector<RewardGroup>& groups) {
  Advantages rewards;
  for (const RewardGroup& group : groups) rewards.push_back(group.rewards);
  return rewards;
}

// REINFORCE++ (Hu et al. 2025) without discount; a KL term in the reward is whitened_tokens'.
Advantages batch_whitened(const std::vector<RewardGroup>& groups) { return whitened(groups, plain_rewards(groups)); }

// REINFORCE++-baseline.
Advantages mean_only_whitened(const std::vector<RewardGroup>& groups) { return whitened(groups, mean_only(groups)); }

TokenAdvantages whitened_tokens(const std::vector<RewardGroup>& groups, const Advantages& values, CostPlace costs) {
  std::vector<double> all;  // in the order of groups, rollouts, tokens
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t i = 0; i < values[g].size(); ++i) {
      const std::vector<double>& cost = groups[g].costs[i];
      const std::size_t begin = all.size();
      all.resize(begin + cost.size());
      double behind = 0;
      for (std::size_t t = cost.size(); t-- > 0;) {
        behind = costs == CostPlace::to_go ? behind + cost[t] : cost[t];
        all[begin + t] = values[g][i] - behind;
      }
    }
  }
  double sum = 0, squares = 0;
  bool differ = false;
  for (const double v : all) sum += v, differ = differ || v != all.front();
  const double mean = differ ? sum / static_cast<double>(all.size()) : 0.0;
  for (double& v : all) v = differ ? v - mean : 0.0, squares += v * v;
  const double deviation = differ ? std::sqrt(squares / (static_cast<double>(all.size()) - 1) + kVarianceEps) : 1.0;
  TokenAdvantages advantages;
  std::size_t next = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    advantages.emplace_back();
    for (std::size_t i = 0; i < values[g].size(); ++i) {
      std::vector<float>& tokens = advantages.back().emplace_back();
      for (std::size_t t = 0; t < groups[g].costs[i].size(); ++t) tokens.push_back(static_cast<float>(all[next++] / deviation));
    }
  }
  return advantages;
}

}  // namespace lockstep
