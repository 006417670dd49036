#include "rl/policy_datum.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(PolicyDatum, AlignsTargetsWithRows) {
  Rollout rollout;
  rollout.tokens = {7, 8, 9};
  rollout.sampling_logprobs = {-0.1f, -0.2f, -0.3f};
  const PolicyDatum d = policy_datum({1, 2, 3}, rollout, std::vector<float>(rollout.tokens.size(), 0.5f));
  EXPECT_EQ(d.tokens, (std::vector<std::int32_t>{1, 2, 3, 7, 8}));
  EXPECT_EQ(d.targets, (std::vector<std::int32_t>{-1, -1, 7, 8, 9}));
  EXPECT_EQ(d.weights, (std::vector<float>{0, 0, 1, 1, 1}));
  EXPECT_EQ(d.advantages, (std::vector<float>{0, 0, 0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(d.old_logprobs, (std::vector<float>{0, 0, -0.1f, -0.2f, -0.3f}));
}

TEST(PolicyDatum, SaysWhatItsTokensWereDrawnFrom) {
  Rollout rollout;
  rollout.tokens = {7, 8};
  rollout.sampling_logprobs = {-0.1f, -0.2f};
  rollout.temperature = 0.7f;
  rollout.kept_tokens = {{}, {}};
  EXPECT_EQ(policy_datum({1, 2, 3}, rollout, {}).temperature, 0.7f);
  EXPECT_TRUE(policy_datum({1, 2, 3}, rollout, {}).kept_tokens.empty());  // nothing was cut anywhere
  rollout.kept_tokens[1] = KeptTokens::of(KeptTokens::Order::by_rank, std::vector<std::int32_t>{4, 8}, 100);
  const PolicyDatum d = policy_datum({1, 2, 3}, rollout, {});
  ASSERT_EQ(d.kept_tokens.size(), d.tokens.size());
  for (std::size_t i = 0; i < d.kept_tokens.size(); ++i) EXPECT_EQ(d.kept_tokens[i].cut(), i == 3) << i;
  EXPECT_EQ(d.kept_tokens[3], rollout.kept_tokens[1]);
}

TEST(PolicyDatum, ACompletionOfOneToken) {
  Rollout rollout;
  rollout.tokens = {7};
  rollout.sampling_logprobs = {-0.1f};
  const PolicyDatum d = policy_datum({1}, rollout, {});
  EXPECT_EQ(d.tokens, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(d.targets, (std::vector<std::int32_t>{7}));
  EXPECT_THROW(policy_datum({1}, Rollout{}, {}), Error);
}

}  // namespace
}  // namespace lockstep
