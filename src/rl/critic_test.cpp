// The critic's part of a step: which states it is asked about, what advantages and returns follow, and its warm-up. Advantages themselves: gae_test.cpp;
// rollouts of several context windows: critic_windows_test.cpp.
#include "rl/critic.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "rl/critic_test_tools.h"
#include "rl/policy_training.h"

namespace lockstep {
namespace {

TEST_F(CriticTest, EveryTrainedTokenHasAnAdvantageOfItsOwn) {
  StepBatch judged = batch();
  for (const PolicyDatum& d : judged.data)
    for (const float a : d.advantages) EXPECT_EQ(a, 0);  // until it is asked
  settings.critic.epochs = 3;
  settings.critic.clip = 0.5;
  settings.critic.learning_rate = 0.25;
  Critic critic(port, settings.critic);
  critic.judge(judged, settings);
  const std::vector<double> rewards = rewards_of(judged);
  ASSERT_EQ(port.asked.size(), judged.data.size());
  const CriticFigures figures = critic.learn(optimizer_step(settings, 1e-3));
  ASSERT_EQ(port.trained.size(), 3u);
  std::set<double> seen;
  for (std::size_t d = 0; d < judged.data.size(); ++d) {
    const PolicyDatum& policy = judged.data[d];
    const ValueDatum& state = port.trained[2][d];
    EXPECT_EQ(state.tokens, policy.tokens);
    EXPECT_EQ(state.weights, policy.weights);
    for (std::size_t i = 0; i < policy.tokens.size(); ++i) {
      if (policy.weights[i] == 0) {
        EXPECT_EQ(policy.advantages[i], 0);
        continue;
      }
      EXPECT_EQ(policy.advantages[i], static_cast<float>(rewards[d]) - state.values[i]);
      EXPECT_EQ(state.returns[i], static_cast<float>(rewards[d]));
      seen.insert(policy.advantages[i]);
    }
  }
  EXPECT_GT(seen.size(), 2u);  // rewards are 0 or 1: not one a rollout
  EXPECT_EQ(port.clips, (std::vector<double>{0.5, 0.5, 0.5}));
  ASSERT_EQ(port.steps.size(), 3u);
  EXPECT_EQ(port.steps[0].learning_rate, 0.25);
  EXPECT_DOUBLE_EQ(figures.value_loss, 0.5);
  EXPECT_DOUBLE_EQ(figures.held, 0.25);
  EXPECT_DOUBLE_EQ(figures.gradient_norm, 2);
  EXPECT_EQ(figures.advantage_low, *seen.begin());
  EXPECT_EQ(figures.advantage_high, *seen.rbegin());
}

// k1 of a half, at every token: of the last one once, of those before it as often as tokens follow and once for itself.
TEST_F(CriticTest, TokensPayForTheDistanceToAReference) {
  settings.kl_coefficient = 0.5;
  settings.kl = "k1";
  settings.kl_in = "reward";
  trainer.reference_shift = 0.5f;
  StepBatch judged = batch();
  Critic(port, settings.critic).judge(judged, settings);
  const std::vector<double> rewards = rewards_of(judged);
  for (std::size_t d = 0; d < judged.data.size(); ++d) {
    const PolicyDatum& policy = judged.data[d];
    for (std::size_t i = policy.tokens.size(), behind = 1; i-- > 0 && policy.weights[i] != 0; ++behind)
      EXPECT_NEAR(policy.advantages[i], rewards[d] - 0.125 * static_cast<double>(1 + i % 7) - 0.25 * static_cast<double>(behind), 1e-5);
  }
  settings.kl_in = "loss";  // then rewards are as they were
  judged = batch();
  Critic(port, settings.critic).judge(judged, settings);
  EXPECT_EQ(judged.data[0].advantages.back(), static_cast<float>(rewards[0]) - 0.125f * static_cast<float>(1 + (judged.data[0].tokens.size() - 1) % 7));
}

TEST_F(CriticTest, ACutCompletionGoesOnWithTheValueBehindIt) {
  sampler.cut = true;
  sampler.right = 1;
  StepBatch ended = batch();
  Critic(port, settings.critic).judge(ended, settings);
  EXPECT_EQ(port.asked[0].tokens, ended.data[0].tokens);
  const std::size_t last = ended.data[0].tokens.size() - 1;
  EXPECT_EQ(ended.data[0].advantages[last], 0 - 0.125f * static_cast<float>(1 + last % 7));

  settings.critic.bootstrap = true;
  StepBatch cut = batch();
  Critic critic(port, settings.critic);
  critic.judge(cut, settings);
  ASSERT_EQ(port.asked[0].tokens.size(), last + 2);
  EXPECT_EQ(port.asked[0].tokens.back(), cut.data[0].targets.back());
  EXPECT_EQ(cut.data[0].advantages[last], 0.125f * (static_cast<float>(1 + (last + 1) % 7) - static_cast<float>(1 + last % 7)));
  critic.learn(optimizer_step(settings, 1e-3));
  EXPECT_EQ(port.trained[0][0].weights[last + 1], 0);  // it has no return
  EXPECT_EQ(port.trained[0][0].weights[last], 1);
}

TEST_F(CriticTest, InTheWarmUpThePolicyStays) {
  settings.critic.warmup = 1;
  settings.rollouts = 1;
  PolicyTraining training(environment, tokenizer, sampler, trainer, settings, {.critic = &port});
  const PolicyStep first = training.step(0, optimizer_step(settings, 1e-3));
  EXPECT_EQ(first.updates, 0);
  EXPECT_TRUE(trainer.steps.empty());
  EXPECT_EQ(port.steps.size(), 1u);
  const PolicyStep second = training.step(1, optimizer_step(settings, 1e-3));
  EXPECT_EQ(second.updates, 1);
  EXPECT_EQ(trainer.steps.size(), 1u);
  EXPECT_EQ(port.steps.size(), 2u);
  EXPECT_TRUE(to_json(second, settings).contains("explained_variance"));
  EXPECT_FALSE(to_json(second, RlSettings{}).contains("explained_variance"));
  EXPECT_THROW(PolicyTraining(environment, tokenizer, sampler, trainer, settings), Error);  // nobody to ask
}

}  // namespace
}  // namespace lockstep
