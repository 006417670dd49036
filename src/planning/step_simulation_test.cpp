// Layouts that are tried, what fits, and the order that times must have.
#include "planning/step_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  // 2^3 over tp, dp and ep; two segments of layers make two stages, and then 2^2. Those with replicas are there under both kinds of shares.
  const auto count = [](const Model& model, int devices, std::int64_t length, RankShard shard) {
    const std::vector<RankLayout> all = layouts_of(model, devices, length);
    return std::count_if(all.begin(), all.end(), [&](const RankLayout& layout) { return layout.shard == shard; });
  };
  EXPECT_EQ(count(*glm.model, 8, 64, RankShard::state), 10 + 6);
  EXPECT_EQ(count(*glm.model, 8, 64, RankShard::weights), 6 + 3);
  EXPECT_EQ(count(*llama.model, 8, 64, RankShard::state), 4 + 3);  // no experts
  EXPECT_EQ(count(*llama.model, 8, 64, RankShard::weights), 3 + 2);
  EXPECT_EQ(count(*llama.model, 12, 64, RankShard::state), 6 + 4);
  for (const RankLayout& layout : layouts_of(*glm.model, 12, 64)) {
    EXPECT_EQ(layout.size(), 12);
    EXPECT_TRUE(layout.shard == RankShard::state || layout.shards_weights()) << layout.text();
  }
  // Of 2048 positions two ranks have pieces, four do not; the other factor is tp, dp or pp.
  EXPECT_EQ(count(*llama.model, 4, 2048, RankShard::state), count(*llama.model, 4, 64, RankShard::state) + count(*llama.model, 2, 64, RankShard::state));
  EXPECT_EQ(count(*llama.model, 4, 2048, RankShard::weights), count(*llama.model, 4, 64, RankShard::weights) + 3);
  EXPECT_EQ(layouts_of(*llama.model, 4, 2048).back().cp, 2);
}

// Where both fit, shares of weights cost exchanges; where the whole does not fit, they are what is left.
TEST(StepSimulation, WeightsInSharesAreTheTablesWhereTheWholeDoesNotFit) {
  const TrainBench llama(kLlama);
  const Profile& profile = profile_by_name("cpu-bf16w");
  const RankLayout state{.dp = 4}, weights{.dp = 4, .shard = RankShard::weights};
  StepPlan plan = plan_over(state, 4);
  DeviceRates device = published_devices()[0];
  const std::vector<SimulatedStep> both = simulate_layouts(llama.model, profile, plan, {weights, state}, device);
  EXPECT_EQ(both[0].layout, state);
  EXPECT_GT(both[1].slow.exchange(), both[0].slow.exchange());
  EXPECT_GT(both[1].slow.hideable, 0);
  EXPECT_NE(both[1].reasons[2].find("weights come and gradients leave"), std::string::npos) << both[1].reasons[2];
  EXPECT_EQ(both[0].reasons[2].find("weights come"), std::string::npos) << both[0].reasons[2];
  const std::int64_t less = std::min(both[0].needed, both[1].needed);
  ASSERT_NE(both[0].needed, both[1].needed);
  device.memory_bytes = less;
  const std::vector<SimulatedStep> tight = simulate_layouts(llama.model, profile, plan, {state, weights}, device);
  EXPECT_TRUE(tight[0].fits());
  EXPECT_FALSE(tight[1].fits());
  EXPECT_EQ(tight[0].needed, less);
  // What can be no first is left out.
  EXPECT_EQ(simulate_fitting(llama.model, profile, plan, {state, weights}, published_devices()[0]).size(), 1u);
  device.memory_bytes = both[0].needed - 1;  // of the whole
  const std::vector<SimulatedStep> fitting = simulate_fitting(llama.model, profile, plan, {state, weights}, device);
  EXPECT_EQ(fitting.size(), 2u);
  EXPECT_EQ(fitting.front().fits(), both[1].needed < both[0].needed);
}

// More ranks than a run may have: a few are planned, the work is that of all.
TEST(StepSimulation, LargeLayoutsAreSimulated) {
  const TrainBench glm(kGlm);
  const Profile& profile = profile_by_name("cpu-bf16w");
  const SimulatedStep one = simulate_step(glm.model, profile, plan_over({}, 128), published_devices()[0]);
  const SimulatedStep step = simulate_step(glm.model, profile, plan_over({.tp = 2, .dp = 128, .ep = 2, .pp = 2}, 128), published_devices()[0]);
  EXPECT_TRUE(step.fits());
  EXPECT_EQ(step.tokens, one.tokens);
  EXPECT_LT(step.slow.forward, one.slow.forward);
  EXPECT_NE(step.reasons.back().find("of the 1024 ranks are planned"), std::string::npos) << step.reasons.back();
  StepPlan plan = plan_over({.tp = 2, .dp = 128, .ep = 2, .pp = 2}, 128);
  const std::vector<RankWork> all = works_of(*glm.model, profile, plan);
  ASSERT_EQ(all.size(), 1024u);
  std::int64_t tokens = 0;
  for (std::size_t rank = 0; rank < all.size(); rank += 8) tokens += all[rank].tokens;  // of each replica's first rank
  EXPECT_EQ(tokens, one.tokens);
  EXPECT_EQ(all[513].arithmetic(), work_of(*glm.model, profile, plan, 513).arithmetic());
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
