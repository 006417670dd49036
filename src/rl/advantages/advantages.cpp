#include "rl/advantages/advantages.h"

#include <algorithm>
#include <cmath>

#include "base/choice.h"
#include "base/error.h"

namespace lockstep {

const std::vector<AdvantageRow>& advantage_rows() {
  // name, formula (r: reward, mean and deviation: of the group, n: its rollouts), least rollouts, rewards at least 0, function, costs of tokens,
  // what is whitened
  static const std::vector<AdvantageRow> rows = {
      {"group-normalised", "(r - mean) / (deviation + 1e-6)", 2, false, group_normalised},
      {"mean-only", "r - mean", 2, false, mean_only},
      {"leave-one-out", "r - mean of the others", 2, false, leave_one_out},
      {"mean-normalised", "(r - mean) / mean", 2, true, mean_normalised},
      {"length-weighted", "r - mean weighed by length", 2, false, length_weighted},
      {"best-minus-second", "best - second best, for the best", 2, false, best_minus_second},
      {"batch-whitened", "r, whitened over the batch's tokens", 1, false, batch_whitened, CostPlace::to_go, plain_rewards},
      {"mean-only-whitened", "r - mean, whitened over the batch's tokens", 2, false, mean_only_whitened, CostPlace::token, mean_only},
  };
  return rows;
}

std::vector<std::string> advantage_names() {
  std::vector<std::string> names;
  for (const AdvantageRow& row : advantage_rows()) names.emplace_back(row.name);
  return names;
}

const AdvantageRow& advantage_row(std::string_view name) {
  for (const AdvantageRow& row : advantage_rows())
    if (row.name == name) return row;
  fail_choice("advantages", name, advantage_names());
}

bool all_equal(const std::vector<double>& rewards) {
  return std::all_of(rewards.begin(), rewards.end(), [&](double r) { return r == rewards.front(); });
}

std::vector<std::vector<float>> estimate_advantages(std::string_view name, const std::vector<RewardGroup>& groups) {
  const AdvantageRow& row = advantage_row(name);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const RewardGroup& group = groups[g];
    const auto wrong = [&](const std::string& what) { fail(ErrorCode::invalid_argument, "group {} {}", g, what); };
    if (std::ssize(group.rewards) < row.least) wrong(fmt::format("has {} rollouts, {} needs at least {}", group.rewards.size(), row.name, row.least));
    if (group.tokens.size() != group.rewards.size()) wrong(fmt::format("has {} rewards and {} lengths", group.rewards.size(), group.tokens.size()));
    for (std::size_t i = 0; i < group.rewards.size(); ++i) {
      const double r = group.rewards[i];
      if (!std::isfinite(r) || (row.nonnegative && r < 0))
        wrong(fmt::format("has reward {}, allowed are finite numbers{}", r,
                          row.nonnegative ? fmt::format(" of at least 0: {} divides by their mean", row.name) : ""));
      if (group.tokens[i] < 1) wrong(fmt::format("has a rollout of {} tokens, allowed are at least 1", group.tokens[i]));
    }
  }
  std::vector<std::vector<float>> advantages;
  for (const std::vector<double>& group : row.estimate(groups)) advantages.emplace_back(group.begin(), group.end());
  return advantages;
}

TokenAdvantages token_advantages(std::string_view name, const std::vector<RewardGroup>& groups) {
  const AdvantageRow& row = advantage_row(name);
  bool costs = false;
  for (const RewardGroup& group : groups) costs = costs || !group.costs.empty();
  std::vector<RewardGroup> plain;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const RewardGroup& group = groups[g];
    plain.push_back({group.rewards, group.tokens});
    if (!costs) continue;
    if (group.costs.size() != group.rewards.size())
      fail(ErrorCode::invalid_argument, "group {} has {} rewards and costs of {} rollouts", g, group.rewards.size(), group.costs.size());
    for (std::size_t i = 0; i < group.costs.size(); ++i) {
      if (std::ssize(group.costs[i]) != group.tokens[i])
        fail(ErrorCode::invalid_argument, "group {} has a rollout of {} tokens and {} costs", g, group.tokens[i], group.costs[i].size());
      for (const double cost : group.costs[i]) {
        if (!std::isfinite(cost)) fail(ErrorCode::invalid_argument, "group {} has the cost {}, allowed are finite numbers", g, cost);
        if (row.costs == CostPlace::rollout) plain.back().rewards[i] -= cost;
      }
    }
  }
  const std::vector<std::vector<float>> whole = estimate_advantages(name, plain);  // and checks what it is given
  if (costs && row.centred) return whitened_tokens(groups, row.centred(plain), row.costs);
  TokenAdvantages advantages;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    advantages.emplace_back();
    for (std::size_t i = 0; i < whole[g].size(); ++i) advantages.back().emplace_back(static_cast<std::size_t>(groups[g].tokens[i]), whole[g][i]);
  }
  return advantages;
}

}  // namespace lockstep
