// Estimators that look at one group alone.
#include <algorithm>
#include <cmath>
#include <limits>

#include "rl/advantages/advantages.h"

namespace lockstep {
namespace {
constexpr double kDeviationEps = 1e-6;

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

// `estimate(group, mean)` of groups whose rewards differ. Where they are equal their mean need not be, in the last bit.
template <class Estimate>
Advantages by_group(const std::vector<RewardGroup>& groups, Estimate&& estimate) {
  Advantages advantages;
  for (const RewardGroup& group : groups)
    advantages.push_back(all_equal(group.rewards) ? std::vector<double>(group.rewards.size(), 0.0) : estimate(group, mean_of(group.rewards)));
  return advantages;
}

std::vector<double> minus(std::vector<double> values, double baseline) {
  for (double& v : values) v -= baseline;
  return values;
}
}  // namespace

// GRPO (Shao et al. 2024), with the sample's deviation (n - 1), as verl.
Advantages group_normalised(const std::vector<RewardGroup>& groups) {
  return by_group(groups, [](const RewardGroup& group, double mean) {
    std::vector<double> centred = minus(group.rewards, mean);
    double squares = 0;
    for (const double c : centred) squares += c * c;
    const double deviation = std::sqrt(squares / (static_cast<double>(centred.size()) - 1));
    for (double& c : centred) c /= deviation + kDeviationEps;
    return centred;
  });
}

// Dr. GRPO (Liu et al. 2025).
Advantages mean_only(const std::vector<RewardGroup>& groups) {
  return by_group(groups, [](const RewardGroup& group, double mean) { return minus(group.rewards, mean); });
}

// RLOO (Ahmadian et al. 2024): n / (n - 1) (r - mean) is the reward less the mean of the others.
Advantages leave_one_out(const std::vector<RewardGroup>& groups) {
  return by_group(groups, [](const RewardGroup& group, double mean) {
    std::vector<double> centred = minus(group.rewards, mean);
    const auto n = static_cast<double>(centred.size());
    for (double& c : centred) c = c * n / (n - 1);
    return centred;
  });
}

// MaxRL, as in prime-rl and SkyRL. Rewards differ and are at least 0, so their mean is above 0.
Advantages mean_normalised(const std::vector<RewardGroup>& groups) {
  return by_group(groups, [](const RewardGroup& group, double mean) {
    std::vector<double> centred = minus(group.rewards, mean);
    for (double& c : centred) c /= mean;
    return centred;
  });
}

// OPO (Hao et al. 2025): the baseline of least variance where a token's gradient has the same size everywhere.
Advantages length_weighted(const std::vector<RewardGroup>& groups) {
  return by_group(groups, [](const RewardGroup& group, double) {
    double weighed = 0, tokens = 0;
    for (std::size_t i = 0; i < group.rewards.size(); ++i) {
      weighed += static_cast<double>(group.tokens[i]) * group.rewards[i];
      tokens += static_cast<double>(group.tokens[i]);
    }
    return minus(group.rewards, weighed / tokens);
  });
}

// Pass@k (arXiv 2503.19595): the first of the best rollouts gets what it has above the second best; the others nothing.
Advantages best_minus_second(const std::vector<RewardGroup>& groups) {
  return by_group(groups, [](const RewardGroup& group, double) {
    const auto best = std::max_element(group.rewards.begin(), group.rewards.end());
    double second = -std::numeric_limits<double>::infinity();
    for (auto r = group.rewards.begin(); r != group.rewards.end(); ++r)
      if (r != best) second = std::max(second, *r);
    std::vector<double> advantages(group.rewards.size(), 0.0);
    advantages[static_cast<std::size_t>(best - group.rewards.begin())] = *best - second;
    return advantages;
  });
}

}  // namespace lockstep
