#include "rl/policy_training.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "rl/rl_test_tools.h"

namespace lockstep {
namespace {

struct PolicyTrainingTest : GameTest {
  PolicyStep step(std::int64_t number) {
    PolicyTraining training(environment, tokenizer, sampler, trainer, settings);
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

TEST_F(PolicyTrainingTest, AMismatchIsSeen) {
  trainer.shift = 0.5f;
  const PolicyStep s = step(0);
  EXPECT_EQ(s.kl.different_bits, s.tokens);
  EXPECT_EQ(s.kl.clipped, s.tokens);
  EXPECT_NEAR(s.kl.k1(), -0.5, 1e-6);
  const auto json = to_json(s);
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
  PolicyTraining allowed(environment, tokenizer, sampler, trainer, settings, true);
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
