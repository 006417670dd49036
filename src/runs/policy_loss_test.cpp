#include "runs/policy_loss.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "train/losses.h"

namespace lockstep {
namespace {

std::string refusal(const PolicyLoss& loss) {
  try {
    check_policy_loss(loss);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

// The loss that published hashes were trained with.
TEST(PolicyLoss, TheDefaultIsClippedOverAllTokens) {
  const LossOptions options = loss_options({});
  const LossParameters plain;
  EXPECT_EQ(options.kind, LossKind::policy);
  EXPECT_EQ(options.averaging, LossAveraging::token_mean);
  EXPECT_EQ(options.ratio_level, RatioLevel::token);
  EXPECT_EQ(options.parameters.clip_low, plain.clip_low);
  EXPECT_EQ(options.parameters.clip_high, plain.clip_high);
  EXPECT_EQ(options.parameters.log_ratio_low, plain.log_ratio_low);
  EXPECT_EQ(options.parameters.log_ratio_high, plain.log_ratio_high);
  EXPECT_EQ(options.parameters.anchor, RatioAnchor::sampler);
  EXPECT_EQ(options.parameters.kl_coefficient, 0.0f);
}

TEST(PolicyLoss, EveryLossWithEveryAveraging) {
  for (const std::string& name : policy_loss_names())
    for (const std::string& averaging : averaging_names())
      EXPECT_EQ(refusal({.name = name, .averaging = averaging, .length_norm = 16}), "accepted") << name << averaging;
  EXPECT_NE(refusal({.averaging = "sequence_token_sum_norm"}).find("reading the option length_norm"), std::string::npos);  // divided by what?
}

TEST(PolicyLoss, ClippingAndOptions) {
  const LossOptions options = loss_options({.name = "gspo", .clip_low = 0.25f, .clip_high = 0.5f, .options = {"seq_ratio_log_cap=5"}, .normaliser = 7});
  EXPECT_EQ(options.ratio_level, RatioLevel::sequence_mean);
  EXPECT_EQ(options.parameters.clip_low, 0.75f);
  EXPECT_EQ(options.parameters.clip_high, 1.5f);
  EXPECT_EQ(options.parameters.log_ratio_high, 5.0f);
  EXPECT_EQ(options.normaliser, 7);
  EXPECT_TRUE(loss_clips("cispo"));
  EXPECT_FALSE(loss_clips("reinforce"));
  EXPECT_EQ(loss_options({.name = "reinforce", .clip_low = 0.25f}).parameters.clip_low, loss_by_name("reinforce").parameters.clip_low);
}

TEST(PolicyLoss, WhatIsNoneIsNamed) {
  EXPECT_NE(refusal({.name = "gpso"}).find("did you mean 'gspo'"), std::string::npos);
  EXPECT_NE(refusal({.name = "cross_entropy"}).find("allowed are importance_sampling, ppo"), std::string::npos);
  EXPECT_NE(refusal({.options = {"beta"}}).find("allowed is KEY=VALUE"), std::string::npos);
  EXPECT_NE(refusal({.options = {"eps_clip=3"}}).find("did you mean 'eps_clip_c'"), std::string::npos);
  EXPECT_NE(refusal({.averaging = "tokens"}).find("allowed is token_mean, sequence_token_mean"), std::string::npos);
}

// Where sampler and trainer have the same numbers: over those at the start of the step always, over those of now until a step was taken; and bounds that
// leave out 1 cut every token.
TEST(PolicyLoss, ACorrectionOfEqualNumbersChangesNothing) {
  const auto nothing = [](std::vector<std::string> options, std::int64_t steps) {
    return corrects_nothing({.name = "ppo", .options = std::move(options)}, steps);
  };
  EXPECT_FALSE(nothing({}, 1));
  for (const char* kind : {"tis", "clip", "icepop"})
    for (const std::int64_t steps : {1, 4}) EXPECT_TRUE(nothing({std::string("correction=") + kind, "anchor=proximal"}, steps)) << kind << steps;
  EXPECT_TRUE(nothing({"correction=mask"}, 1));
  EXPECT_FALSE(nothing({"correction=mask"}, 2));
  EXPECT_FALSE(nothing({"correction=tis", "anchor=current"}, 4));
  EXPECT_FALSE(nothing({"correction=tis", "anchor=proximal", "correction_high=0.5"}, 1));
  EXPECT_FALSE(nothing({"correction=icepop", "anchor=proximal", "correction_low=1.1"}, 1));
  EXPECT_TRUE(nothing({"correction=tis", "anchor=proximal", "correction_low=1.1"}, 1));  // which it does not read
}

}  // namespace
}  // namespace lockstep
