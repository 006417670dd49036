#include "rl/step_batch.h"

#include <gtest/gtest.h>

#include <set>

#include "rl/advantages/advantages.h"
#include "rl/rl_test_tools.h"

namespace lockstep {
namespace {

struct StepBatchTest : GameTest {
  StepBatch batch(std::int64_t number) {
    RolloutSource source(environment, tokenizer, sampler);
    return step_batch(environment, source, settings, number);
  }
  std::set<std::vector<std::int32_t>> prompts() const {
    std::set<std::vector<std::int32_t>> all;
    for (const SampleRequest& r : sampler.requests) all.insert(r.prompt);
    return all;
  }
};

TEST_F(StepBatchTest, GroupsWithoutSpreadAreDrawnAgainAndThenLeftOut) {
  sampler.right = 0.25;
  settings.problems = 6;
  const StepBatch plain = batch(0);
  EXPECT_EQ(plain.groups.size(), 6u);
  const auto flat = static_cast<std::int64_t>(plain.zero_spread * 6 + 0.5);
  ASSERT_GT(flat, 0);  // the seeds give some; else this test shows nothing
  ASSERT_LT(flat, 6);
  const std::set<std::vector<std::int32_t>> before = prompts();
  sampler.requests.clear();
  settings.redraws = 10;
  const StepBatch drawn = batch(0);
  EXPECT_GE(drawn.redrawn, flat);
  EXPECT_EQ(drawn.groups.size() + static_cast<std::size_t>(drawn.dropped), 6u);
  EXPECT_EQ(drawn.zero_spread, static_cast<double>(drawn.dropped) / 6);
  EXPECT_EQ(drawn.rollouts, (6 + drawn.redrawn) * 4);
  EXPECT_EQ(std::ssize(sampler.requests), drawn.rollouts);
  for (const RolloutGroup& group : drawn.groups) EXPECT_FALSE(all_equal(group.rewards()));
  EXPECT_EQ(drawn.data.size(), drawn.groups.size() * 4);
  EXPECT_EQ(drawn.begins.back(), drawn.data.size());
  // The first drawing is the plain one's, so that what is not drawn again keeps its rollouts.
  const std::set<std::vector<std::int32_t>> after = prompts();
  for (const auto& prompt : before) EXPECT_TRUE(after.contains(prompt));
}

// Rollouts are asked for at the settings, with their kept sets, and their data say both.
TEST_F(StepBatchTest, SamplesAtTheSettings) {
  settings.temperature = 0.7;
  settings.top_k = 40;
  settings.top_p = 0.9;
  settings.min_p = 0.05;
  const StepBatch drawn = batch(0);
  ASSERT_FALSE(sampler.requests.empty());
  for (const SampleRequest& r : sampler.requests) {
    EXPECT_EQ(r.temperature, 0.7f);
    EXPECT_EQ(r.top_k, 40);
    EXPECT_EQ(r.top_p, 0.9f);
    EXPECT_EQ(r.min_p, 0.05f);
    EXPECT_TRUE(r.kept_tokens);
  }
  for (const PolicyDatum& d : drawn.data) EXPECT_EQ(d.temperature, 0.7f);
}

TEST_F(StepBatchTest, ABatchWithoutAnySpreadIsEmpty) {
  sampler.right = 1;
  settings.redraws = 3;
  const StepBatch drawn = batch(0);
  EXPECT_EQ(drawn.redrawn, 18);
  EXPECT_EQ(drawn.dropped, 6);
  EXPECT_TRUE(drawn.data.empty());
  EXPECT_EQ(drawn.reward, 1.0);
  EXPECT_EQ(drawn.pass_at_group, 1.0);
}

TEST_F(StepBatchTest, AStepsDrawingsAreItsOwn) {
  settings.redraws = 10;
  sampler.right = 0;  // all are drawn again, ten times
  batch(0);
  const std::size_t asked = sampler.requests.size();
  std::set<std::uint64_t> seeds;
  for (const SampleRequest& r : sampler.requests) seeds.insert(r.seed);
  batch(1);
  for (std::size_t i = asked; i < sampler.requests.size(); ++i) seeds.insert(sampler.requests[i].seed);
  EXPECT_EQ(seeds.size(), 2u * 6 * 11);
}

TEST_F(StepBatchTest, OverlongTokensCostTheAdvantageNotTheReward) {
  settings.max_tokens = 10;
  settings.overlong_tokens = 4;
  settings.overlong_penalty = 2;
  EXPECT_EQ(overlong_punishment(6, settings), 0.0);
  EXPECT_EQ(overlong_punishment(7, settings), -0.5);
  EXPECT_EQ(overlong_punishment(10, settings), -2.0);
  // A right answer has 2 tokens; a wrong one has 4, all that are allowed.
  settings.max_tokens = 4;
  settings.overlong_tokens = 2;
  sampler.wrong = "0+0";
  const StepBatch mixed = batch(0);
  std::int64_t spread = 0;
  for (std::size_t g = 0; g < mixed.groups.size(); ++g) {
    const std::vector<double> rewards = mixed.groups[g].rewards();
    if (all_equal(rewards)) continue;
    ++spread;
    double mean = 0;
    for (const double r : rewards) mean += (r == 1 ? 1 : -2) / 4.0;
    for (std::size_t j = 0; j < 4; ++j) EXPECT_EQ(mixed.data[mixed.begins[g] + j].advantages.back(), static_cast<float>((rewards[j] == 1 ? 1 : -2) - mean));
  }
  EXPECT_GT(spread, 0);
  EXPECT_EQ(mixed.reward, mixed.pass_at_1);
}

}  // namespace
}  // namespace lockstep
