#include "runs/sft_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

TEST(SftPlan, LearningRatesFallWithTheSizeAndAdaptersTakeMore) {
  EXPECT_EQ(default_learning_rate(135'000'000, false, false), 2e-5);
  EXPECT_EQ(default_learning_rate(135'000'000, true, false), 2e-4);
  EXPECT_EQ(default_learning_rate(8'000'000'000, true, false), 1e-4);
  EXPECT_EQ(default_learning_rate(8'000'000'000, false, false), 5e-6);
  EXPECT_EQ(default_learning_rate(1000, false, false), 1e-3);
  EXPECT_EQ(default_learning_rate(135'000'000, false, true), 1e-3);
  for (std::int64_t size = 1; size < std::int64_t{1} << 42; size *= 3) {
    EXPECT_GE(default_learning_rate(size, true, false), 1e-4) << size;
    EXPECT_GE(default_learning_rate(size, false, false), default_learning_rate(3 * size, false, false)) << size;
  }
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
