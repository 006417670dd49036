#include "rl/advantages/advantages.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep {

const std::vector<AdvantageRow>& advantage_rows() {
  // name, formula (r: reward, mean and deviation: of the group, n: its rollouts), least rollouts, rewards at least 0, function
  static const std::vector<AdvantageRow> rows = {
      {"group-normalised", "(r - mean) / (deviation + 1e-6)", 2, false, group_normalised},
      {"mean-only", "r - mean", 2, false, mean_only},
      {"leave-one-out", "r - mean of the others", 2, false, leave_one_out},
      {"mean-normalised", "(r - mean) / mean", 2, true, mean_normalised},
      {"length-weighted", "r - mean weighed by length", 2, false, length_weighted},
      {"best-minus-second", "best - second best, for the best", 2, false, best_minus_second},
      {"batch-whitened", "r, whitened over the batch's tokens", 1, false, batch_whitened},
      {"mean-only-whitened", "r - mean, whitened over the batch's tokens", 2, false, mean_only_whitened},
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
  fail(ErrorCode::invalid_argument, "advantages is '{}', allowed are {}{}", name, fmt::join(advantage_names(), ", "), did_you_mean(name, advantage_names()));
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

}  // namespace lockstep
