// The estimators of advantages by name: from the rewards of a batch's groups (the rollouts of one problem) to one advantage a rollout, which all
// of its tokens have. An estimator is one row of advantage_rows(), a function of group.cpp or batch.cpp, and a line of docs/rl.md.
//   const auto advantages = estimate_advantages("mean-only", {{{1, 0, 0, 1}, {3, 5, 2, 4}}});  // {{0.5, -0.5, -0.5, 0.5}}
// They decide what is learned, so they are computed in double in a fixed order with + - * / and the square root alone: the same bits on every
// machine. Pure functions.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The rollouts of one problem: their rewards, and how many tokens of each are trained (at least 1).
struct RewardGroup {
  std::vector<double> rewards;
  std::vector<std::int64_t> tokens;
  std::vector<std::vector<double>> costs = {};  // by rollout and token, subtracted from the token's reward: KL to a reference. Empty: none
};
// By group and rollout.
using Advantages = std::vector<std::vector<double>>;
// By group, rollout and trained token.
using TokenAdvantages = std::vector<std::vector<std::vector<float>>>;

// Where the costs of tokens enter. rollout: their sum, into the rollout's reward. to_go: the costs of a token and all later ones, into its own
// return. token: each into its own token, after the group's mean was subtracted.
enum class CostPlace { rollout, to_go, token };

struct AdvantageRow {
  std::string_view name, formula;
  std::int64_t least;  // rollouts that a group has at least
  bool nonnegative;    // rewards below 0 have no meaning
  Advantages (*estimate)(const std::vector<RewardGroup>& groups);
  CostPlace costs = CostPlace::rollout;
  // Of an estimator that is whitened over tokens: what is whitened, of each rollout.
  Advantages (*centred)(const std::vector<RewardGroup>& groups) = nullptr;
};
const std::vector<AdvantageRow>& advantage_rows();
std::vector<std::string> advantage_names();
const AdvantageRow& advantage_row(std::string_view name);  // invalid_argument, with the names that there are

// A group whose rewards are all equal has no advantage from a group's own mean.
bool all_equal(const std::vector<double>& rewards);

// Errors invalid_argument: a group with too few rollouts, a reward that is not finite or below 0 where that has no meaning, unequal sizes.
std::vector<std::vector<float>> estimate_advantages(std::string_view name, const std::vector<RewardGroup>& groups);
// One advantage per token, with the tokens' costs. Without costs all tokens of a rollout have the rollout's. Errors: those of estimate_advantages; a
// cost that is not finite; costs of only some rollouts or tokens.
TokenAdvantages token_advantages(std::string_view name, const std::vector<RewardGroup>& groups);

// group.cpp: from each group's own rewards. The estimates of a group whose rewards are all equal are +0.
Advantages group_normalised(const std::vector<RewardGroup>& groups);
Advantages mean_only(const std::vector<RewardGroup>& groups);
Advantages leave_one_out(const std::vector<RewardGroup>& groups);
Advantages mean_normalised(const std::vector<RewardGroup>& groups);
Advantages length_weighted(const std::vector<RewardGroup>& groups);
Advantages best_minus_second(const std::vector<RewardGroup>& groups);
// batch.cpp: whitened over the trained tokens of the whole batch.
Advantages batch_whitened(const std::vector<RewardGroup>& groups);
Advantages mean_only_whitened(const std::vector<RewardGroup>& groups);
Advantages plain_rewards(const std::vector<RewardGroup>& groups);  // what batch_whitened whitens
// `values` of rollouts minus the costs of each token, or of it and all later ones (`costs`), whitened.
TokenAdvantages whitened_tokens(const std::vector<RewardGroup>& groups, const Advantages& values, CostPlace costs);

}  // namespace lockstep
