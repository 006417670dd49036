#include "rl/grpo.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(Advantages, MeanOnly) {
  EXPECT_EQ(group_advantages({1, 0, 0, 1}, AdvantageKind::mean_only), (std::vector<float>{0.5f, -0.5f, -0.5f, 0.5f}));
  EXPECT_EQ(group_advantages({1, 0, 0, 0, 0, 0, 0, 0}, AdvantageKind::mean_only)[0], 0.875f);
}

TEST(Advantages, GroupNormalisedUsesTheSampleDeviation) {
  const std::vector<float> a = group_advantages({1, 0, 0, 0}, AdvantageKind::group_normalised);
  const double deviation = std::sqrt((0.75 * 0.75 + 3 * 0.25 * 0.25) / 3);
  EXPECT_EQ(a[0], static_cast<float>(0.75 / (deviation + 1e-6)));
  EXPECT_EQ(a[1], static_cast<float>(-0.25 / (deviation + 1e-6)));
  EXPECT_EQ(a[1], a[3]);
}

TEST(Advantages, EqualRewardsTeachNothing) {
  for (const AdvantageKind kind : {AdvantageKind::mean_only, AdvantageKind::group_normalised}) {
    for (const double reward : {0.0, 1.0, 0.1}) {
      for (const float a : group_advantages(std::vector<double>(7, reward), kind)) {
        EXPECT_EQ(a, 0.0f);
        EXPECT_FALSE(std::signbit(a));
      }
    }
  }
}

TEST(Advantages, AGroupOfOneIsRefused) {
  EXPECT_THROW(group_advantages({1}, AdvantageKind::mean_only), Error);
  EXPECT_THROW(group_advantages({}, AdvantageKind::mean_only), Error);
}

TEST(Advantages, NamesAreChecked) {
  EXPECT_EQ(advantage_kind_by_name("group-normalised"), AdvantageKind::group_normalised);
  try {
    advantage_kind_by_name("mean-onyl");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'mean-only'"), std::string::npos) << e.what();
  }
}

TEST(PolicyDatum, AlignsTargetsWithRows) {
  Rollout rollout;
  rollout.tokens = {7, 8, 9};
  rollout.sampling_logprobs = {-0.1f, -0.2f, -0.3f};
  const PolicyDatum d = policy_datum({1, 2, 3}, rollout, 0.5f);
  EXPECT_EQ(d.tokens, (std::vector<std::int32_t>{1, 2, 3, 7, 8}));
  EXPECT_EQ(d.targets, (std::vector<std::int32_t>{-1, -1, 7, 8, 9}));
  EXPECT_EQ(d.weights, (std::vector<float>{0, 0, 1, 1, 1}));
  EXPECT_EQ(d.advantages, (std::vector<float>{0, 0, 0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(d.old_logprobs, (std::vector<float>{0, 0, -0.1f, -0.2f, -0.3f}));
}

TEST(PolicyDatum, ACompletionOfOneToken) {
  Rollout rollout;
  rollout.tokens = {7};
  rollout.sampling_logprobs = {-0.1f};
  const PolicyDatum d = policy_datum({1}, rollout, 1);
  EXPECT_EQ(d.tokens, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(d.targets, (std::vector<std::int32_t>{7}));
  EXPECT_THROW(policy_datum({1}, Rollout{}, 1), Error);
}

TEST(RlSettings, EveryFieldIsChecked) {
  EXPECT_NO_THROW(check(RlSettings{}));
  const auto refused = [](auto&& change) {
    RlSettings s;
    change(s);
    EXPECT_THROW(check(s), Error);
  };
  refused([](RlSettings& s) { s.rollouts = 1; });
  refused([](RlSettings& s) { s.steps = 0; });
  refused([](RlSettings& s) { s.warmup = s.steps + 1; });
  refused([](RlSettings& s) { s.temperature = 0; });
  refused([](RlSettings& s) { s.clip_low = std::nan(""); });
  refused([](RlSettings& s) { s.beta2 = 1; });
  refused([](RlSettings& s) { s.eps = 0; });
  refused([](RlSettings& s) { s.share_prompts = "forwards"; });
}

TEST(RlSettings, SharingOfPromptsIsDescribedWhereItChangesBits) {
  RlSettings s;
  const std::string before = describe(s);
  s.share_prompts = "off";
  EXPECT_EQ(describe(s), before);
  s.share_prompts = "backward";
  EXPECT_EQ(describe(s), before + " share_prompts backward");
  try {
    share_prompts_by_name("forwad");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'forward'"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
