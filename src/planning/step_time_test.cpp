// Times by hand: rates, efficiencies, hosts, the slowest rank.
#include "planning/step_time.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Rates that make seconds round.
const DeviceRates kRound{.name = "round", .source = "this test", .arithmetic = 1000, .memory = 100, .link = 10, .network = 1, .host_devices = 2};

RankStep rank_step(int rank, double forward, std::int64_t model_bytes, std::int64_t data_bytes) {
  RankStep step;
  step.rank = rank;
  step.work = {.tokens = 1, .forward = forward, .backward = 2 * forward, .experts = 0, .weight_bytes = 50, .accumulator_bytes = 100, .optimizer_bytes = 300};
  step.exchanges.groups[static_cast<std::size_t>(RankGroup::model)][static_cast<std::size_t>(Collective::all_reduce)] = {2, model_bytes};
  step.exchanges.groups[static_cast<std::size_t>(RankGroup::data)][static_cast<std::size_t>(Collective::reduce_scatter)] = {1, data_bytes};
  return step;
}

TEST(StepTime, AddsWhatTheSlowestRankTakes) {
  const RankLayout layout{2, 2, 1};
  const std::vector<RankStep> steps{rank_step(0, 3000, 40, 4), rank_step(1, 1000, 20, 3)};
  const std::vector<RankWork> all{steps[0].work, steps[1].work, steps[1].work, steps[1].work};
  const StepTime time = step_time(layout, steps, all, kRound, {.arithmetic = 0.5, .memory = 1, .link = 0.5, .call_seconds = 0.25});
  EXPECT_DOUBLE_EQ(time.forward, 6);
  EXPECT_DOUBLE_EQ(time.backward, 12 + 1);
  EXPECT_DOUBLE_EQ(time.optimizer, 3);
  EXPECT_DOUBLE_EQ(time.exchanges[static_cast<std::size_t>(RankGroup::model)], 8 + 0.5);  // on one host
  EXPECT_DOUBLE_EQ(time.exchanges[static_cast<std::size_t>(RankGroup::data)], 8 + 0.25);  // between two
  EXPECT_DOUBLE_EQ(time.exchanges[static_cast<std::size_t>(RankGroup::tensor)], 0);
  EXPECT_DOUBLE_EQ(time.hideable, 8);
  EXPECT_DOUBLE_EQ(time.imbalance, 2);
  EXPECT_DOUBLE_EQ(time.total(), 6 + 13 + 3 + 8.5 + 8.25);
}

// With weights in shares their gathers could be hidden, too, and in the forward as well; the step's time counts them all the same.
TEST(StepTime, WeightsInSharesCouldComeMeanwhile) {
  RankStep step = rank_step(0, 3000, 40, 4);
  step.exchanges.groups[static_cast<std::size_t>(RankGroup::data)][static_cast<std::size_t>(Collective::all_gather)] = {3, 5};
  const Efficiency efficiency{.arithmetic = 0.5, .memory = 1, .link = 0.5, .call_seconds = 0.25};
  const auto time_of = [&](RankShard shard) { return step_time({.tp = 2, .dp = 2, .shard = shard}, {step}, {step.work}, kRound, efficiency); };
  const StepTime state = time_of(RankShard::state), weights = time_of(RankShard::weights);
  EXPECT_DOUBLE_EQ(state.hideable, 8);         // 4 bytes at 0.5 a second, beside a backward of 13 s
  EXPECT_DOUBLE_EQ(weights.hideable, 8 + 10);  // and 5 more; forward and backward are 19 s
  EXPECT_DOUBLE_EQ(weights.total(), state.total());
  step.exchanges.groups[static_cast<std::size_t>(RankGroup::data)][static_cast<std::size_t>(Collective::all_gather)] = {3, 500};
  EXPECT_DOUBLE_EQ(time_of(RankShard::state).hideable, 8);
  EXPECT_DOUBLE_EQ(time_of(RankShard::weights).hideable, 6 + 13);
  step.work.batches = 4;  // whole accumulators leave in the last micro-batch alone
  EXPECT_DOUBLE_EQ(time_of(RankShard::state).hideable, 13.0 / 4);
  EXPECT_DOUBLE_EQ(time_of(RankShard::weights).hideable, 6 + 13);
}

// Between hosts a weight's accumulator travels in fewer bytes than it has in memory, within one it is copied as it stands.
TEST(StepTime, AccumulatorsTakeFewerBytesBetweenHosts) {
  const RankStep step = rank_step(0, 3000, 40, 8);
  const Efficiency efficiency{.arithmetic = 0.5, .memory = 1, .link = 0.5, .call_seconds = 0.25};
  DeviceRates fewer = kRound;
  fewer.network_accumulator_bytes = 6;
  const auto time_on = [&](const DeviceRates& device) { return step_time({2, 2, 1}, {step}, {step.work}, device, efficiency); };
  const StepTime whole = time_on(kRound), packed = time_on(fewer);
  constexpr auto kModel = static_cast<std::size_t>(RankGroup::model), kData = static_cast<std::size_t>(RankGroup::data);
  EXPECT_DOUBLE_EQ(whole.exchanges[kData], 16 + 0.25);
  EXPECT_DOUBLE_EQ(packed.exchanges[kData], 4 + 0.25);
  EXPECT_DOUBLE_EQ(packed.hideable, 4);
  EXPECT_DOUBLE_EQ(packed.exchanges[kModel], whole.exchanges[kModel]) << "sums within a host";
  fewer.host_devices = 4;
  EXPECT_DOUBLE_EQ(time_on(fewer).exchanges[kData], 8 / 5.0 + 0.25) << "one host";
}

TEST(StepTime, WeightsThatAreReadMayTakeLongerThanArithmetic) {
  RankStep step = rank_step(0, 1, 0, 0);
  step.work.weight_bytes = 1000;
  step.work.backward_passes = 2;
  const StepTime time = step_time({}, {step}, {step.work}, kRound, {});
  EXPECT_DOUBLE_EQ(time.forward, 10);
  EXPECT_DOUBLE_EQ(time.backward, 20 + 1);
  EXPECT_DOUBLE_EQ(time.exchange(), 0);  // one rank has nobody
}

TEST(StepTime, GroupsCrossHosts) {
  const RankLayout layout{4, 4, 2};
  EXPECT_FALSE(crosses_hosts(layout, 5, RankGroup::tensor, 8));
  EXPECT_FALSE(crosses_hosts(layout, 5, RankGroup::model, 8));
  EXPECT_TRUE(crosses_hosts(layout, 5, RankGroup::data, 8));
  EXPECT_TRUE(crosses_hosts(layout, 5, RankGroup::world, 8));
  EXPECT_TRUE(crosses_hosts({3, 1, 3}, 7, RankGroup::tensor, 8));  // 6, 7 and 8
  EXPECT_FALSE(crosses_hosts({1, 1, 1}, 0, RankGroup::world, 8));
}

TEST(StepTime, DevicesHaveThePublishedRates) {
  const std::vector<DeviceRates>& devices = published_devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0].name, "h200");
  EXPECT_EQ(devices[0].link, 450e9);
  EXPECT_EQ(devices[1].arithmetic, 2250e12);
  EXPECT_EQ(devices[1].network, 50e9);
}

}  // namespace
}  // namespace lockstep
