#include "rl/trajectory/policy_datum.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

Turn written_turn(std::vector<std::int32_t> shown, std::vector<std::int32_t> tokens, float first_logprob) {
  Turn turn{.shown = std::move(shown), .tokens = std::move(tokens)};
  for (std::size_t i = 0; i < turn.tokens.size(); ++i) turn.sampling_logprobs.push_back(first_logprob - 0.125f * static_cast<float>(i));
  return turn;
}

TEST(PolicyDatum, AlignsTargetsWithRows) {
  const PolicyDatum d = policy_datum({{written_turn({1, 2, 3}, {7, 8, 9}, -0.25f)}}, 1);
  EXPECT_EQ(d.tokens, (std::vector<std::int32_t>{1, 2, 3, 7, 8}));
  EXPECT_EQ(d.targets, (std::vector<std::int32_t>{-1, -1, 7, 8, 9}));
  EXPECT_EQ(d.weights, (std::vector<float>{0, 0, 1, 1, 1}));
  EXPECT_EQ(d.advantages, (std::vector<float>{0, 0, 0, 0, 0}));
  EXPECT_EQ(d.old_logprobs, (std::vector<float>{0, 0, -0.25f, -0.375f, -0.5f}));
}

TEST(PolicyDatum, WhatWasShownBetweenTurnsIsNoTarget) {
  const PolicyDatum d = policy_datum({{written_turn({1, 2}, {7, 8}, -0.25f), written_turn({3, 4}, {9}, -1), written_turn({}, {5}, -2)}}, 1);
  EXPECT_EQ(d.tokens, (std::vector<std::int32_t>{1, 2, 7, 8, 3, 4, 9}));
  EXPECT_EQ(d.targets, (std::vector<std::int32_t>{-1, 7, 8, -1, -1, 9, 5}));
  EXPECT_EQ(d.weights, (std::vector<float>{0, 1, 1, 0, 0, 1, 1}));
  EXPECT_EQ(d.old_logprobs, (std::vector<float>{0, -0.25f, -0.375f, 0, 0, -1, -2}));
  std::vector<std::size_t> rows;
  each_trained(d, [&](std::size_t row) { rows.push_back(row); });
  EXPECT_EQ(rows, (std::vector<std::size_t>{1, 2, 5, 6}));
}

// A turn that is not trained is as if it had been shown; at the end of a chain it is left out.
TEST(PolicyDatum, TurnsThatAreNotTrained) {
  Turn hidden = written_turn({3}, {4, 5}, -3);
  hidden.trained = false;
  hidden.kept_tokens.assign(2, KeptTokens::of(KeptTokens::Order::by_rank, std::vector<std::int32_t>{4, 5}, 100));
  const Turn first = written_turn({1, 2}, {7, 8}, -0.25f), last = written_turn({6}, {9}, -1);
  const PolicyDatum between = policy_datum({{first, hidden, last}}, 1), shown = policy_datum({{first, written_turn({3, 4, 5, 6}, {9}, -1)}}, 1);
  EXPECT_EQ(between.tokens, shown.tokens);
  EXPECT_EQ(between.targets, shown.targets);
  EXPECT_EQ(between.weights, shown.weights);
  EXPECT_EQ(between.old_logprobs, shown.old_logprobs);
  EXPECT_EQ(between.advantages, shown.advantages);
  const PolicyDatum behind = policy_datum({{first, hidden}}, 1), alone = policy_datum({{first}}, 1);
  EXPECT_EQ(behind.tokens, alone.tokens);
  EXPECT_EQ(behind.targets, alone.targets);
  EXPECT_EQ(behind.kept_tokens.size(), behind.tokens.size());
  for (const KeptTokens& kept : behind.kept_tokens) EXPECT_FALSE(kept.cut());
  EXPECT_THROW(policy_datum({{hidden}}, 1), Error);
}

TEST(PolicyDatum, SaysWhatItsTokensWereDrawnFrom) {
  Chain chain{{written_turn({1, 2, 3}, {7, 8}, -0.25f), written_turn({4}, {8}, -1)}};
  chain.turns[0].kept_tokens = {{}, {}};
  EXPECT_EQ(policy_datum(chain, 0.7f).temperature, 0.7f);
  EXPECT_TRUE(policy_datum(chain, 0.7f).kept_tokens.empty());  // nothing was cut anywhere
  chain.turns[0].kept_tokens[1] = KeptTokens::of(KeptTokens::Order::by_rank, std::vector<std::int32_t>{4, 8}, 100);
  const PolicyDatum d = policy_datum(chain, 1);
  ASSERT_EQ(d.kept_tokens.size(), d.tokens.size());
  for (std::size_t i = 0; i < d.kept_tokens.size(); ++i) EXPECT_EQ(d.kept_tokens[i].cut(), i == 3) << i;
  EXPECT_EQ(d.kept_tokens[3], chain.turns[0].kept_tokens[1]);
  chain.turns[1].kept_tokens = {chain.turns[0].kept_tokens[1]};  // the set of the row that predicts it, behind what was shown
  const PolicyDatum both = policy_datum(chain, 1);
  ASSERT_EQ(both.kept_tokens.size(), both.tokens.size());
  for (std::size_t i = 0; i < both.kept_tokens.size(); ++i) EXPECT_EQ(both.kept_tokens[i].cut(), i == 3 || i == 5) << i;
}

TEST(PolicyDatum, ACompletionOfOneToken) {
  const PolicyDatum d = policy_datum({{written_turn({1}, {7}, -0.25f)}}, 1);
  EXPECT_EQ(d.tokens, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(d.targets, (std::vector<std::int32_t>{7}));
  EXPECT_THROW(policy_datum({{written_turn({1}, {}, 0)}}, 1), Error);
  EXPECT_THROW(policy_datum({{written_turn({}, {7}, 0)}}, 1), Error);
  EXPECT_THROW(policy_datum({}, 1), Error);
}

}  // namespace
}  // namespace lockstep
