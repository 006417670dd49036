#include "rl/advantages/advantages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

// Values against verl's core_algos: tests/oracle/test_advantages.py.
namespace lockstep {
namespace {

// One group whose rollouts have one token each.
std::vector<float> of_one(std::string_view name, std::vector<double> rewards) {
  std::vector<std::int64_t> tokens(rewards.size(), 1);
  return estimate_advantages(name, {{std::move(rewards), std::move(tokens)}})[0];
}

std::string refusal(std::string_view name, const std::vector<RewardGroup>& groups) {
  try {
    estimate_advantages(name, groups);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Advantages, OfAGroup) {
  EXPECT_EQ(of_one("mean-only", {1, 0, 0, 1}), (std::vector<float>{0.5f, -0.5f, -0.5f, 0.5f}));
  EXPECT_EQ(of_one("mean-only", {1, 0, 0, 0, 0, 0, 0, 0})[0], 0.875f);
  EXPECT_EQ(of_one("leave-one-out", {1, 0, 0, 1, 0}), (std::vector<float>{0.75f, -0.5f, -0.5f, 0.75f, -0.5f}));
  EXPECT_EQ(of_one("mean-normalised", {1, 0, 0, 0}), (std::vector<float>{3, -1, -1, -1}));
  EXPECT_EQ(of_one("best-minus-second", {0.25, 1, 0.5, 1}), (std::vector<float>{0, 0, 0, 0}));  // two are best
  EXPECT_EQ(of_one("best-minus-second", {0.25, 1, 0.5, 0}), (std::vector<float>{0, 0.5f, 0, 0}));
}

TEST(Advantages, GroupNormalisedUsesTheSampleDeviation) {
  const std::vector<float> a = of_one("group-normalised", {1, 0, 0, 0});
  const double deviation = std::sqrt((0.75 * 0.75 + 3 * 0.25 * 0.25) / 3);
  EXPECT_EQ(a[0], static_cast<float>(0.75 / (deviation + 1e-6)));
  EXPECT_EQ(a[1], static_cast<float>(-0.25 / (deviation + 1e-6)));
  EXPECT_EQ(a[1], a[3]);
}

TEST(Advantages, LongRolloutsWeighMoreInTheBaseline) {
  EXPECT_EQ(estimate_advantages("length-weighted", {{{1, 0}, {3, 1}}})[0], (std::vector<float>{0.25f, -0.75f}));
}

// By token: without costs a rollout's own; with them by the estimator's place for them.
TEST(Advantages, CostsOfTokens) {
  const RewardGroup plain{{1, 0}, {2, 3}};
  EXPECT_EQ(token_advantages("mean-only", {plain})[0], (std::vector<std::vector<float>>{{0.5f, 0.5f}, {-0.5f, -0.5f, -0.5f}}));
  RewardGroup costly = plain;
  costly.costs = {{0.25, 0.25}, {0, 0, 0.25}};
  EXPECT_EQ(token_advantages("mean-only", {costly})[0], (std::vector<std::vector<float>>{{0.375f, 0.375f}, {-0.375f, -0.375f, -0.375f}}));
  // To go: 0.5, 0.75 and -0.25 three times; each alone, behind the mean: 0.25 twice, -0.5 twice, -0.75.
  const auto to_go = token_advantages("batch-whitened", {costly})[0];
  EXPECT_GT(to_go[0][1], to_go[0][0]);
  EXPECT_EQ(to_go[1][0], to_go[1][2]);
  const auto each = token_advantages("mean-only-whitened", {costly})[0];
  EXPECT_EQ(each[0][0], each[0][1]);
  EXPECT_LT(each[1][2], each[1][0]);
  double sum = 0, squares = 0;
  for (const auto& rollout : each)
    for (const float a : rollout) sum += static_cast<double>(a), squares += static_cast<double>(a) * static_cast<double>(a);
  EXPECT_NEAR(sum, 0, 1e-6);
  EXPECT_NEAR(squares / 4, 1, 1e-5);
  costly.costs[1].pop_back();
  EXPECT_THROW(token_advantages("mean-only", {costly}), Error);
  costly.costs.pop_back();
  EXPECT_THROW(token_advantages("mean-only", {costly}), Error);
  costly.costs = {{0, std::nan("")}, {0, 0, 0}};
  EXPECT_THROW(token_advantages("mean-only", {costly}), Error);
}

// Every token counts, so a batch whose long rollouts are good has a higher mean than that of its rollouts.
TEST(Advantages, WhitenedOverTheTokensOfTheBatch) {
  const std::vector<RewardGroup> groups = {{{1}, {3}}, {{0}, {1}}};
  const auto a = estimate_advantages("batch-whitened", groups);
  const double deviation = std::sqrt((3 * 0.25 * 0.25 + 0.75 * 0.75) / 3 + 1e-8);
  EXPECT_EQ(a[0][0], static_cast<float>(0.25 / deviation));
  EXPECT_EQ(a[1][0], static_cast<float>(-0.75 / deviation));
}

TEST(Advantages, EqualRewardsTeachNothing) {
  for (const AdvantageRow& row : advantage_rows()) {
    for (const double reward : {0.0, 1.0, 0.1}) {
      for (const float a : of_one(row.name, std::vector<double>(7, reward))) {
        EXPECT_EQ(a, 0.0f) << row.name;
        EXPECT_FALSE(std::signbit(a)) << row.name;
      }
    }
  }
}

TEST(Advantages, BadRewardsAndGroupsAreNamed) {
  EXPECT_EQ(refusal("mean-only", {{{1, 0}, {1, 1}}, {{1}, {1}}}), "group 1 has 1 rollouts, mean-only needs at least 2");
  EXPECT_EQ(refusal("batch-whitened", {{{1}, {1}}}), "accepted");
  EXPECT_EQ(refusal("batch-whitened", {{{}, {}}}), "group 0 has 0 rollouts, batch-whitened needs at least 1");
  EXPECT_NE(refusal("mean-only", {{{1, std::nan("")}, {1, 1}}}).find("has reward nan"), std::string::npos);
  EXPECT_NE(refusal("mean-only", {{{1, std::numeric_limits<double>::infinity()}, {1, 1}}}).find("has reward inf"), std::string::npos);
  EXPECT_NE(refusal("mean-normalised", {{{1, -1}, {1, 1}}}).find("at least 0: mean-normalised divides by their mean"), std::string::npos);
  EXPECT_EQ(refusal("mean-only", {{{1, 0}, {1}}}), "group 0 has 2 rewards and 1 lengths");
  EXPECT_NE(refusal("mean-only", {{{1, 0}, {1, 0}}}).find("a rollout of 0 tokens"), std::string::npos);
  EXPECT_NE(refusal("mean-onyl", {}).find("did you mean 'mean-only'"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
