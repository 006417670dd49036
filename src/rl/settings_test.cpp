#include "rl/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(RlSettings, EveryFieldIsChecked) {
  EXPECT_NO_THROW(check(RlSettings{}));
  const auto refused = [](auto&& change) {
    RlSettings s;
    change(s);
    EXPECT_THROW(check(s), Error);
  };
  refused([](RlSettings& s) { s.rollouts = 1; });
  refused([](RlSettings& s) { s.advantages = "mean"; });
  refused([](RlSettings& s) { s.loss = "cross_entropy"; });
  refused([](RlSettings& s) { s.loss_config = {"clip_hihg_threshold=2"}; });
  refused([](RlSettings& s) { s.averaging = "mean"; });
  refused([](RlSettings& s) { s.redraws = -1; });
  refused([](RlSettings& s) { s.overlong_tokens = s.max_tokens + 1; });
  refused([](RlSettings& s) { s.overlong_penalty = std::nan(""); });
  refused([](RlSettings& s) { s.epochs = 0; });
  refused([](RlSettings& s) { s.mini_batches = s.problems + 1; });
  refused([](RlSettings& s) { s.stop_kl = -1; });
  refused([](RlSettings& s) { s.importance_cap = 2, s.epochs = 2; });
  refused([](RlSettings& s) { s.importance_cap = 2, s.loss_config = {"anchor=proximal"}; });
  refused([](RlSettings& s) { s.correction = "tiss"; });
  refused([](RlSettings& s) { s.correction = "mask", s.loss_config = {"correction=mask"}; });
  refused([](RlSettings& s) { s.correction = "tis", s.loss_config = {"anchor=sampler"}; });
  refused([](RlSettings& s) { s.correction = "tis", s.importance_cap = 2; });
  refused([](RlSettings& s) { s.loss_config = {"correction_high=3"}; });
  refused([](RlSettings& s) { s.kl = "k4"; });
  refused([](RlSettings& s) { s.kl_in = "loos"; });
  refused([](RlSettings& s) { s.kl_coefficient = 1, s.kl_in = "reward", s.kl = "k3_plus"; });
  refused([](RlSettings& s) { s.kl_coefficient = 1, s.kl_in = "reward", s.advantages = "mean-normalised"; });
  refused([](RlSettings& s) { s.loss_config = {"kl_coefficient=0.1"}; });
  refused([](RlSettings& s) { s.steps = 0; });
  refused([](RlSettings& s) { s.warmup = s.steps + 1; });
  refused([](RlSettings& s) { s.temperature = 0; });
  refused([](RlSettings& s) { s.top_k = -1; });
  refused([](RlSettings& s) { s.top_p = 0; });
  refused([](RlSettings& s) { s.top_p = 1.5; });
  refused([](RlSettings& s) { s.min_p = std::nan(""); });
  refused([](RlSettings& s) { s.clip_low = std::nan(""); });
  refused([](RlSettings& s) { s.beta2 = 1; });
  refused([](RlSettings& s) { s.eps = 0; });
  refused([](RlSettings& s) { s.share_prompts = "forwards"; });
  refused([](RlSettings& s) { s.share_prompts_from = 1; });
  refused([](RlSettings& s) { s.compact_at = 72; });  // of a task of one answer
  refused([](RlSettings& s) { s.environment = "lockbox", s.compact_at = -1; });
  refused([](RlSettings& s) { s.environment = "lockbox", s.compact_at = 72, s.chat = true; });
  RlSettings windows;
  windows.environment = "lockbox";
  windows.compact_at = 72;
  EXPECT_NO_THROW(check(windows));
}

TEST(RlSettings, AnUnknownNameSaysWhatWasMeant) {
  const auto refusal = [](const auto& change) -> std::string {
    RlSettings s;
    change(s);
    try {
      check(s);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  const auto meant = [](const std::string& told, const std::string& name) { EXPECT_NE(told.find("did you mean '" + name + "'"), std::string::npos) << told; };
  meant(refusal([](RlSettings& s) { s.advantages = "leave-on-out"; }), "leave-one-out");
  meant(refusal([](RlSettings& s) { s.advantages = "gea", s.critic.kind = "full"; }), "gae");
  meant(refusal([](RlSettings& s) { s.loss = "cipso"; }), "cispo");
  meant(refusal([](RlSettings& s) { s.loss_config = {"clip_hihg_threshold=2"}; }), "clip_high_threshold");
  meant(refusal([](RlSettings& s) { s.correction = "tiss"; }), "tis");
  meant(refusal([](RlSettings& s) { s.averaging = "token_meen"; }), "token_mean");
  meant(refusal([](RlSettings& s) { s.kl = "k3_plu"; }), "k3_plus");
  meant(refusal([](RlSettings& s) { s.kl_in = "rewad"; }), "reward");
  meant(refusal([](RlSettings& s) { s.advantages = "gae", s.critic.kind = "adaptor"; }), "adapter");
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

TEST(RlSettings, OneRolloutIsEnoughWhereTheEstimatorNeedsNoGroup) {
  RlSettings s;
  s.rollouts = 1;
  try {
    check(s);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rollouts is 1, the advantages mean-only need at least 2"), std::string::npos) << e.what();
  }
  s.advantages = "batch-whitened";
  EXPECT_NO_THROW(check(s));
  s.redraws = 1;
  EXPECT_THROW(check(s), Error);
}

// A correction that weighs a ratio has it over the trainer's log-probabilities, unless its options say what it is over; one that masks has it over the
// sampler's.
TEST(RlSettings, ACorrectionIsAnOptionOfTheLoss) {
  using Options = std::vector<std::string>;
  const auto options = [](const std::string& correction, const std::string& loss, const Options& own) {
    RlSettings s;
    s.correction = correction, s.loss = loss, s.loss_config = own;
    EXPECT_NO_THROW(check(s)) << correction << " of " << loss;
    const Options all = policy_loss(s).options;
    EXPECT_EQ(needs_proximal(s), std::find(all.begin(), all.end(), "anchor=proximal") != all.end());
    return all;
  };
  EXPECT_EQ(options("none", "ppo", {}), Options());
  for (const char* kind : {"tis", "clip", "icepop"}) EXPECT_EQ(options(kind, "ppo", {}), (Options{std::string("correction=") + kind, "anchor=proximal"}));
  EXPECT_EQ(options("tis", "ppo", {"anchor=current"}), (Options{"anchor=current", "correction=tis"}));
  EXPECT_EQ(options("tis", "reinforce", {}), Options{"correction=tis"});
  EXPECT_EQ(options("mask", "ppo", {"correction_high=1.5"}), (Options{"correction_high=1.5", "correction=mask"}));
}

// One factor by the sampler's ratio, over whichever ratio the correction stands; the refusal names what was asked for. A mask is no such factor.
TEST(RlSettings, ACorrectionThatWeighsGoesWithNoCap) {
  const auto told = [](auto&& change) -> std::string {
    RlSettings s;
    s.importance_cap = 2;
    change(s);
    try {
      check(s);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const char* part) { EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks " << part; };
  has(told([](RlSettings& s) { s.correction = "clip"; }), "with correction clip");
  has(told([](RlSettings& s) { s.correction = "tis", s.loss = "reinforce"; }), "with correction tis");
  has(told([](RlSettings& s) { s.loss_config = {"correction=icepop", "anchor=current"}; }), "with correction icepop");
  has(told([](RlSettings& s) { s.loss_config = {"anchor=proximal"}; }), "with loss_config anchor=proximal");
  EXPECT_EQ(told([](RlSettings& s) { s.correction = "mask"; }), "");
}

// The description of the settings that published hashes are of is what it was before there were algorithms.
TEST(RlSettings, WhatIsAsItWasHasNoWord) {
  RlSettings s;
  EXPECT_EQ(
      describe(s),
      "environment countdown steps 150 problems 32 rollouts 8 max_tokens 16 temperature 1 advantages mean-only clip 0.2 0.28 learning_rate 0.00015 linear "
      "warmup 10 adamw 0.95 0.999 1e-08 weight_decay 0 max_norm 1 seed 1");
  const std::string before = describe(s);
  const auto changes = [&](auto&& change) {
    RlSettings other;
    change(other);
    EXPECT_NE(describe(other), before);
  };
  changes([](RlSettings& o) { o.top_k = 40; });
  changes([](RlSettings& o) { o.top_p = 0.9; });
  changes([](RlSettings& o) { o.min_p = 0.1; });
  changes([](RlSettings& o) { o.loss = "gspo"; });
  changes([](RlSettings& o) { o.loss_config = {"eps_clip_c=3"}; });
  changes([](RlSettings& o) { o.correction = "mask"; });
  changes([](RlSettings& o) { o.averaging = "sum"; });
  changes([](RlSettings& o) { o.redraws = 1; });
  changes([](RlSettings& o) { o.overlong_tokens = 1; });
  changes([](RlSettings& o) { o.epochs = 2; });
  changes([](RlSettings& o) { o.mini_batches = 2; });
  changes([](RlSettings& o) { o.stop_kl = 0.1; });
  changes([](RlSettings& o) { o.compact_at = 72; });
  changes([](RlSettings& o) { o.chat = true; });
  changes([](RlSettings& o) { o.train_summaries = false; });
  RlSettings critic;
  critic.critic.kind = "full";
  const std::string carried = describe(critic);
  critic.critic.gae.carry = false;
  EXPECT_EQ(describe(critic), carried + " chain_value terminal");
}

}  // namespace
}  // namespace lockstep
