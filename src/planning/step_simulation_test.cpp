// Layouts that are tried, what fits, and the order that times must have.
#include "planning/step_simulation.h"

#include <gtest/gtest.h>

#include "train/train_test_tools.h"

namespace lockstep {
namespace {

StepPlan plan_over(const RankLayout& layout, int sequences) {
  StepPlan plan;
  plan.sequences.assign(static_cast<std::size_t>(sequences), TrainSequence::next_token(std::vector<std::int32_t>(65)));
  plan.trainer.ranks = layout;
  return plan;
}

TEST(StepSimulation, LayoutsAreAllOfSoManyDevices) {
  const TrainBench glm(kGlm), llama(kLlama);
  // 2^3 over tp, dp and ep; two segments of layers make two stages, and then 2^2.
  EXPECT_EQ(layouts_of(*glm.model, 8, 64).size(), 10u + 6u);
  EXPECT_EQ(layouts_of(*llama.model, 8, 64).size(), 4u + 3u);  // no experts
  EXPECT_EQ(layouts_of(*llama.model, 12, 64).size(), 6u + 4u);
  for (const RankLayout& layout : layouts_of(*glm.model, 12, 64)) EXPECT_EQ(layout.size(), 12);
  // Of 2048 positions two ranks have pieces, four do not; the other factor is tp, dp or pp.
  EXPECT_EQ(layouts_of(*llama.model, 4, 2048).size(), layouts_of(*llama.model, 4, 64).size() + layouts_of(*llama.model, 2, 64).size());
  EXPECT_EQ(layouts_of(*llama.model, 4, 2048).back().cp, 2);
}

TEST(StepSimulation, TimesAreARangeAndWhatDoesNotFitHasNone) {
  const TrainBench glm(kGlm);
  const Profile& profile = profile_by_name("cpu-bf16w");
  DeviceRates device = published_devices()[0];
  for (const RankLayout& layout : layouts_of(*glm.model, 4, 64)) {
    SCOPED_TRACE(layout.text());
    const SimulatedStep step = simulate_step(glm.model, profile, plan_over(layout, 4), device);
    EXPECT_TRUE(step.fits());
    EXPECT_EQ(step.tokens, 4 * 64);
    EXPECT_GT(step.slow.total(), step.fast.total());
    EXPECT_GT(step.fast.exchange(), 0);
    EXPECT_GE(step.slow.imbalance, 1);
    EXPECT_GE(step.reasons.size(), 3u);
    device.memory_bytes = step.needed - 1;
    const SimulatedStep tight = simulate_step(glm.model, profile, plan_over(layout, 4), device);
    EXPECT_FALSE(tight.fits());
    EXPECT_EQ(tight.slow.total(), 0);
    device = published_devices()[0];
  }
}

// Three sequences over two replicas: one has two of them.
TEST(StepSimulation, AReplicaWithMoreSequencesIsSeen) {
  const TrainBench llama(kLlama);
  const Profile& profile = profile_by_name("cpu-bf16w");
  EXPECT_DOUBLE_EQ(simulate_step(llama.model, profile, plan_over({1, 2, 1}, 4), published_devices()[1]).slow.imbalance, 1);
  EXPECT_DOUBLE_EQ(simulate_step(llama.model, profile, plan_over({1, 2, 1}, 3), published_devices()[1]).slow.imbalance, 4.0 / 3);
}

// Rates that ranks share are divided: two ranks of one machine are no faster than one.
TEST(StepSimulation, SharedRatesAreDivided) {
  const TrainBench llama(kLlama);
  DeviceRates device = published_devices()[0];
  device.shared = true;
  const Profile& profile = profile_by_name("cpu-bf16w");
  const StepTime one = simulate_step(llama.model, profile, plan_over({}, 2), device).slow;
  const StepTime two = simulate_step(llama.model, profile, plan_over({1, 2, 1}, 2), device).slow;
  EXPECT_GE(two.forward, one.forward * 0.999);
  EXPECT_GT(two.total(), one.total());
}

}  // namespace
}  // namespace lockstep
