#include "runs/sft_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(SftPlan, LearningRatesFallWithTheSizeAndAdaptersTakeMore) {
  EXPECT_EQ(default_learning_rate(135'000'000, {}), 2e-5);
  EXPECT_EQ(default_learning_rate(135'000'000, {.adapter = true}), 2e-4);
  EXPECT_EQ(default_learning_rate(8'000'000'000, {.adapter = true}), 1e-4);
  EXPECT_EQ(default_learning_rate(8'000'000'000, {}), 5e-6);
  EXPECT_EQ(default_learning_rate(1000, {}), 1e-3);
  EXPECT_EQ(default_learning_rate(135'000'000, {.from_scratch = true}), 1e-3);
  EXPECT_EQ(default_learning_rate(135'000'000, {.optimizer = "dimuon"}), 1.3e-3);  // AdamW gets 2e-5 of it
  EXPECT_EQ(default_learning_rate(135'000'000, {.adapter = true, .optimizer = "dimuon"}), 1.3e-3);
  for (std::int64_t size = 1; size < std::int64_t{1} << 42; size *= 3) {
    EXPECT_GE(default_learning_rate(size, {.adapter = true}), 1e-4) << size;
    EXPECT_GE(default_learning_rate(size, {}), default_learning_rate(3 * size, {})) << size;
  }
}

TEST(SftPlan, TheSizeOfAModelIsThatOfItsPanels) {
  Manifest manifest;
  manifest.add({"experts", ParameterLayout::packed, 2, 17, 3});  // 32 rows each
  manifest.add({"table", ParameterLayout::table, 1, 5, 4});
  EXPECT_EQ(parameters_of(manifest), 2 * 32 * 3 + 5 * 4);
}

TEST(SftPlan, StepsBatchAndWarmUpFollowTheData) {
  const SftPlan sixty = plan_sft({}, 54, 135'000'000);
  EXPECT_EQ(sixty.batch, 6);
  EXPECT_EQ(sixty.schedule.steps, 27);
  EXPECT_EQ(sixty.schedule.warmup, 2);
  EXPECT_EQ(plan_sft({}, 1, 1000).schedule.steps, 3);
  EXPECT_EQ(plan_sft({}, 100000, 1000).batch, kDefaultBatch);
  EXPECT_EQ(plan_sft({}, 100000, 1000).schedule.warmup, 100);
  EXPECT_EQ(plan_sft({.epochs = 1, .batch = 7}, 50, 1000).schedule.steps, 8);
  EXPECT_EQ(plan_sft({.steps = 5, .warmup = 100}, 50, 1000).schedule.warmup, 5);
  EXPECT_EQ(plan_sft({.steps = 5, .batch = 2, .learning_rate = 0.5, .warmup = 1}, 0, 1000).schedule.peak, 0.5);
  EXPECT_THROW(plan_sft({}, 0, 1000), Error);
  EXPECT_THROW(plan_sft({.epochs = 2, .steps = 3}, 10, 1000), Error);
}

}  // namespace
}  // namespace lockstep
