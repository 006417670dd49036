#include "rl/policy_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "rl/rl_test_tools.h"

namespace lockstep {
namespace {

struct PolicyTrainingTest : GameTest {
  PolicyTrainingOptions options;
  PolicyStep step(std::int64_t number) {
    PolicyTraining training(environment, tokenizer, sampler, trainer, settings, options);
    return training.step(number, optimizer_step(settings, 1e-3));
  }
};

// Only where it is asked for: the last token of a prompt has targets, so it is each rollout's own.
TEST_F(PolicyTrainingTest, DeclaresPromptsWhenTheBackwardIsToShareThem) {
  step(3);
  for (const PolicyDatum& d : trainer.data) EXPECT_EQ(d.shared_prefix, 0);
  settings.share_prompts = "backward";
  step(3);
  ASSERT_EQ(trainer.data.size(), 24u);
  for (std::size_t k = 0; k < 24; ++k) {
    EXPECT_EQ(trainer.data[k].prefix_group, static_cast<std::int64_t>(k / 4));
    EXPECT_EQ(trainer.data[k].shared_prefix, static_cast<std::int64_t>(sampler.requests[24 + k].prompt.size()) - 1);
  }
}

TEST_F(PolicyTrainingTest, FeedsWhatWasSampled) {
  const PolicyStep s = step(3);
  ASSERT_EQ(trainer.data.size(), 24u);
  ASSERT_EQ(sampler.requests.size(), 24u);
  std::set<std::uint64_t> seeds;
  double right = 0, tokens = 0;
  for (std::size_t k = 0; k < 24; ++k) {
    const PolicyDatum& d = trainer.data[k];
    const SampleRequest& r = sampler.requests[k];
    seeds.insert(r.seed);
    EXPECT_EQ(r.sample_index, static_cast<std::int32_t>(k % 4));
    const Problem problem = environment.problem(Split::train, settings.seed, 18 + k / 4);
    EXPECT_EQ(r.prompt, tokenizer.encode(problem.prompt, false));
    // The row before the first sampled token is the prompt's last.
    const std::size_t first = r.prompt.size() - 1;
    EXPECT_EQ(d.weights[first], 1.0f);
    EXPECT_EQ(d.targets.back(), kTestEnd);
    for (const float w : d.weights) tokens += w;
    const std::string answer = tokenizer.decode(std::vector<std::int32_t>(d.targets.begin() + static_cast<std::ptrdiff_t>(first), d.targets.end() - 1), false);
    const bool solved = environment.reward(problem, answer) == 1;
    right += solved;
    if (d.advantages[first] != 0) {
      EXPECT_EQ(d.advantages[first] > 0, solved);
    }
  }
  EXPECT_EQ(seeds.size(), 6u);
  EXPECT_DOUBLE_EQ(s.reward, right / 24);
  EXPECT_EQ(s.pass_at_1, s.reward);
  EXPECT_EQ(trainer.loss.normaliser, tokens);
  EXPECT_EQ(s.tokens, static_cast<std::int64_t>(tokens));
  EXPECT_EQ(trainer.loss.clip_low, 0.2f);
  EXPECT_EQ(trainer.loss.clip_high, 0.28f);
  EXPECT_EQ(s.kl.different_bits, 0);
  EXPECT_EQ(s.kl.k3(), 0.0);
  EXPECT_EQ(s.kl.tokens, s.tokens);
  EXPECT_DOUBLE_EQ(s.entropy, 1.5);
  EXPECT_EQ(s.gradient_norm, 0.25);
  ASSERT_EQ(trainer.steps.size(), 1u);
  EXPECT_EQ(trainer.steps[0].learning_rate, 1e-3);
  EXPECT_EQ(trainer.steps[0].beta2, 0.999);
}

TEST_F(PolicyTrainingTest, AdvantagesOfAGroupSumToZero) {
  step(0);
  for (std::size_t g = 0; g < 6; ++g) {
    float sum = 0;
    for (std::size_t j = 0; j < 4; ++j) sum += trainer.data[4 * g + j].advantages.back();
    EXPECT_EQ(sum, 0.0f);
  }
}

TEST_F(PolicyTrainingTest, GroupsWithoutSpreadKeepTheirTokens) {
  sampler.right = 1;
  const PolicyStep s = step(0);
  EXPECT_EQ(s.zero_spread, 1.0);
  EXPECT_EQ(s.pass_at_group, 1.0);
  EXPECT_EQ(trainer.loss.normaliser, static_cast<double>(s.tokens));
  EXPECT_EQ(s.tokens, 48);
  for (const PolicyDatum& d : trainer.data)
    for (const float a : d.advantages) EXPECT_EQ(a, 0.0f);
}

TEST_F(PolicyTrainingTest, ADifferenceEndsTheRunBeforeAnythingIsLearned) {
  trainer.shift = 1e-6f;
  try {
    step(3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::internal);
    const std::string what = e.what();
    EXPECT_NE(what.find("step 4: token 0 of rollout 0 of the problem '19:'"), std::string::npos) << what;
    EXPECT_NE(what.find("bits 0x"), std::string::npos) << what;
  }
  EXPECT_EQ(trainer.abandoned, 1);
  EXPECT_TRUE(trainer.steps.empty());
  options.allow_profile_mix = true;  // then it is expected
  EXPECT_GT(step(3).kl.different_bits, 0);
  EXPECT_EQ(trainer.steps.size(), 1u);
  options.allow_profile_mix = false;
  settings.temperature = 0.5;  // both numbers are of that distribution
  EXPECT_THROW(step(3), Error);
}

TEST_F(PolicyTrainingTest, ADifferenceIsToldBeforeItEndsTheRun) {
  trainer.shift = 1e-6f;
  int told = 0;
  options.differs = [&](const DifferentToken& token) {
    ++told;
    EXPECT_EQ(trainer.abandoned, 1);
    EXPECT_EQ(token.step, 3);
    EXPECT_EQ(token.sampled, token.datum.old_logprobs[token.row]);
    EXPECT_NE(token.trained, token.sampled);
    EXPECT_NE(token.datum.weights[token.row], 0.0f);
    return std::string("; it is written down");
  };
  try {
    step(3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_TRUE(std::string(e.what()).ends_with("counts such tokens; it is written down")) << e.what();
  }
  EXPECT_EQ(told, 1);
  options.stop_at_difference = false;
  step(3);
  EXPECT_EQ(told, 1);
}

TEST_F(PolicyTrainingTest, ADifferenceInTheLastTokenOfTheLastRolloutIsSeen) {
  struct OneBit : FakeTrainer {
    using FakeTrainer::FakeTrainer;
    PolicyResult forward_backward(const std::vector<PolicyDatum>& fed, const PolicyLoss& with) override {
      PolicyResult result = FakeTrainer::forward_backward(fed, with);
      result.logprobs.back().back() = std::nextafter(result.logprobs.back().back(), 0.0f);
      return result;
    }
  } wrong(sampler);
  PolicyTraining training(environment, tokenizer, sampler, wrong, settings);
  EXPECT_THROW(training.step(0, {}), Error);
}

// Problems stay together, every one is in one mini-batch of an epoch, and each update is averaged over its own tokens.
TEST_F(PolicyTrainingTest, EpochsAndMiniBatches) {
  settings.epochs = 2;
  settings.mini_batches = 4;  // of 6 problems: 1, 2, 1, 2
  trainer.step_shift = 0.01f;
  const PolicyStep s = step(0);
  ASSERT_EQ(trainer.calls.size(), 8u);
  std::vector<std::vector<std::int32_t>> seen;
  for (std::size_t m = 0; m < 8; ++m) {
    EXPECT_EQ(trainer.calls[m].size(), m % 2 ? 8u : 4u);
    if (m < 4)
      for (const PolicyDatum& d : trainer.calls[m]) seen.push_back(d.tokens);
    EXPECT_EQ(trainer.calls[m].front().tokens, trainer.calls[m % 4].front().tokens);
  }
  EXPECT_EQ(seen.size(), 24u);
  EXPECT_EQ(trainer.steps.size(), 8u);
  EXPECT_EQ(s.updates, 8);
  double tokens = 0;
  for (const PolicyDatum& d : trainer.calls.back())
    for (const float w : d.weights) tokens += w;
  EXPECT_EQ(trainer.loss.normaliser, tokens);
  // What was trained before the first update has the sampler's bits; from then on the policy has moved, which is no mismatch.
  EXPECT_EQ(s.kl.different_bits, 0);
  EXPECT_GT(s.kl.tokens, 0);
  EXPECT_EQ(s.kl.tokens + s.drift.tokens, 2 * s.tokens);
  EXPECT_EQ(s.drift.different_bits, s.drift.tokens);
  const auto json = to_json(s, settings);
  EXPECT_EQ(json["updates"], 8);
  EXPECT_FALSE(json.contains("groups_redrawn"));
  EXPECT_FALSE(to_json(s, RlSettings{}).contains("updates"));
}

TEST_F(PolicyTrainingTest, AStepEndsWhenThePolicyHasMovedTooFar) {
  settings.epochs = 3;
  settings.mini_batches = 2;
  settings.stop_kl = 0.02;
  trainer.step_shift = 0.1f;  // k3 of about 0.005 after one update, 0.02 after two, 0.05 after three
  const PolicyStep s = step(0);
  EXPECT_EQ(trainer.calls.size(), 3u);
  EXPECT_EQ(trainer.steps.size(), 2u);
  EXPECT_EQ(trainer.abandoned, 1);
  EXPECT_EQ(s.updates, 2);
  EXPECT_EQ(s.skipped, 4);
  EXPECT_EQ(to_json(s, settings)["mini_batches_skipped"], 4);
}

TEST_F(PolicyTrainingTest, ABatchWithoutASignalTakesNoStep) {
  sampler.right = 1;
  settings.redraws = 2;
  const PolicyStep s = step(0);
  EXPECT_TRUE(trainer.steps.empty());
  EXPECT_EQ(s.updates, 0);
  EXPECT_EQ(s.dropped, 6);
  EXPECT_EQ(s.gradient_norm, 0.0);
  EXPECT_EQ(to_json(s, settings)["groups_dropped"], 6);
}

TEST_F(PolicyTrainingTest, TheLossIsTheSettings) {
  settings.loss = "gspo";
  settings.averaging = "sequence_token_sum_norm";
  settings.loss_config = {"seq_ratio_log_cap=5"};
  step(0);
  EXPECT_EQ(trainer.loss.name, "gspo");
  EXPECT_EQ(trainer.loss.length_norm, static_cast<double>(settings.max_tokens));
  EXPECT_EQ(trainer.loss.normaliser, 0.0);
  EXPECT_EQ(trainer.loss.options, settings.loss_config);
}

// The proximal log-probabilities are the sampler's own bits: a forward is spent on them only where the profiles differ.
TEST_F(PolicyTrainingTest, ProximalLogprobsAreTheSamplersBits) {
  settings.loss_config = {"anchor=proximal"};
  PolicyStep s = step(0);
  EXPECT_EQ(trainer.scores, 0);
  EXPECT_EQ(s.proximal_forwards, 0);
  EXPECT_EQ(to_json(s, settings)["proximal_forwards"], 0);
  for (const PolicyDatum& d : trainer.data) EXPECT_EQ(d.proximal_logprobs, d.old_logprobs);
  sampler.digest = "another";
  options.allow_profile_mix = true;
  s = step(1);
  EXPECT_EQ(trainer.scores, 1);
  EXPECT_EQ(s.proximal_forwards, 24);
  settings.loss_config = {};
  EXPECT_FALSE(to_json(step(2), settings).contains("proximal_forwards"));
  EXPECT_TRUE(trainer.data[0].proximal_logprobs.empty());
}

TEST_F(PolicyTrainingTest, KlToTheReferenceIsOfTheLossOrTheReward) {
  trainer.reference_shift = 0.5f;
  sampler.wrong = "12345";  // longer than what is right: it pays for more tokens
  step(0);
  const std::vector<PolicyDatum> plain = trainer.data;
  EXPECT_EQ(trainer.scores, 0);
  settings.kl_coefficient = 0.25;
  PolicyStep s = step(0);  // the same rollouts: the weights of the test doubles do not move
  EXPECT_NEAR(s.reference.k1(), 0.5, 1e-6);
  EXPECT_EQ(trainer.loss.options, (std::vector<std::string>{"kl=k3", "kl_coefficient=0.25"}));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(trainer.data[i].advantages, plain[i].advantages);
    EXPECT_EQ(trainer.data[i].reference_logprobs[0], plain[i].old_logprobs[0] - 0.5f);
  }
  settings.kl_in = "reward";
  settings.kl = "k1";
  s = step(0);
  EXPECT_TRUE(trainer.loss.options.empty());
  // mean-only: each rollout's reward is less by 0.25 * 0.5 a token, and the group's mean with it.
  bool lengths_differ = false;
  for (std::size_t g = 0; g < 6; ++g) {
    double mean = 0, plain_mean = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      mean += static_cast<double>(trainer.data[4 * g + j].advantages.back());
      plain_mean += static_cast<double>(plain[4 * g + j].advantages.back());
    }
    EXPECT_NEAR(mean, 0, 1e-6);
    for (std::size_t j = 0; j < 4; ++j) {
      double tokens = 0, all = 0;
      for (const float w : plain[4 * g + j].weights) tokens += w != 0;
      for (std::size_t k = 0; k < 4; ++k)
        for (const float w : plain[4 * g + k].weights) all += w != 0;
      EXPECT_NEAR(trainer.data[4 * g + j].advantages.back(), plain[4 * g + j].advantages.back() - 0.125 * (tokens - all / 4), 1e-6);
      lengths_differ = lengths_differ || tokens != all / 4;
    }
  }
  EXPECT_TRUE(lengths_differ);
  EXPECT_NEAR(to_json(s, settings)["reference_k1"].get<double>(), 0.5, 1e-6);
  EXPECT_EQ(s.reward, s.pass_at_1);  // the environment's own
}

TEST_F(PolicyTrainingTest, AMismatchIsSeen) {
  options.stop_at_difference = false;
  trainer.shift = 0.5f;
  const PolicyStep s = step(0);
  EXPECT_EQ(s.kl.different_bits, s.tokens);
  EXPECT_EQ(s.kl.clipped, s.tokens);
  EXPECT_NEAR(s.kl.k1(), -0.5, 1e-6);
  const auto json = to_json(s, settings);
  EXPECT_EQ(json["step"], 1);
  EXPECT_EQ(json["different_bits"], s.tokens);
}

TEST_F(PolicyTrainingTest, ProfilesAreNotMixedUnasked) {
  sampler.digest = "another";
  try {
    PolicyTraining training(environment, tokenizer, sampler, trainer, settings);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("another"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("same"), std::string::npos);
  }
  PolicyTraining allowed(environment, tokenizer, sampler, trainer, settings, {.allow_profile_mix = true});
  EXPECT_NO_THROW(allowed.step(0, {}));
}

TEST_F(PolicyTrainingTest, ASamplerThatDoesNotFollowIsFound) {
  trainer.publishes = false;
  PolicyTraining training(environment, tokenizer, sampler, trainer, settings);
  training.step(0, {});
  EXPECT_THROW(training.step(1, {}), Error);
}

TEST_F(PolicyTrainingTest, StepsDependOnTheirNumberAlone) {
  PolicyTraining all(environment, tokenizer, sampler, trainer, settings);
  all.step(0, {});
  all.step(1, {});
  const auto data = trainer.data;
  sampler.version = trainer.version = 1;
  PolicyTraining resumed(environment, tokenizer, sampler, trainer, settings);
  resumed.step(1, {});
  ASSERT_EQ(data.size(), trainer.data.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    EXPECT_EQ(data[i].tokens, trainer.data[i].tokens);
    EXPECT_EQ(data[i].targets, trainer.data[i].targets);
    EXPECT_EQ(data[i].advantages, trainer.data[i].advantages);
  }
}

}  // namespace
}  // namespace lockstep
