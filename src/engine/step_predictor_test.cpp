#include "engine/step_predictor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"

namespace lockstep {
namespace {

// What a step costs where nothing disturbs it.
struct Costs {
  double step = 0.004, row = 3e-4, token = 2e-4, key = 1e-6;
  double of(const StepWork& w) const { return step + row * w.rows + token * w.tokens + key * w.keys; }
};

// Decoding rows, and now and then a chunk of a prompt.
StepWork any_work(RandomSequence& draws, bool chunks = true) {
  StepWork work;
  const double decoding = 1 + draws.below(40);
  work.rows = work.tokens = decoding;
  work.keys = decoding * (20 + draws.below(400));
  if (chunks && draws.below(3) == 0) {
    const double chunk = 1 + draws.below(128);
    work.rows += chunk;
    work.keys += chunk * (chunk + 1) / 2;
  }
  return work;
}

TEST(StepPredictor, LearnsWhatStepsCost) {
  RandomSequence draws(3, RandomStream::fuzz);
  const Costs costs;
  StepPredictor steps;
  for (int i = 0; i < 60; ++i) {
    const StepWork work = any_work(draws);
    steps.observe(work, costs.of(work));
  }
  for (int i = 0; i < 100; ++i) {
    const StepWork work = any_work(draws);
    EXPECT_NEAR(steps.seconds(work) / costs.of(work), 1, 0.02) << work.rows << " " << work.tokens << " " << work.keys;
  }
}

TEST(StepPredictor, OfDecodingAloneRowsAndTokensAreOne) {
  RandomSequence draws(4, RandomStream::fuzz);
  const Costs costs;
  StepPredictor steps;
  for (int i = 0; i < 60; ++i) {
    const StepWork work = any_work(draws, false);
    steps.observe(work, costs.of(work));
  }
  for (int i = 0; i < 100; ++i) {
    const StepWork work = any_work(draws, false);
    EXPECT_NEAR(steps.seconds(work) / costs.of(work), 1, 0.02);
  }
  // A chunk, which was never seen, costs something; and once it was, what it costs.
  const StepWork chunk{.rows = 60, .tokens = 1, .keys = 1830};
  EXPECT_GT(steps.seconds(chunk), 0.5 * costs.of(chunk));
  for (int i = 0; i < 3; ++i) steps.observe(chunk, costs.of(chunk));
  EXPECT_NEAR(steps.seconds(chunk) / costs.of(chunk), 1, 0.1);
}

TEST(StepPredictor, KnowsNothingOfWhatWasNeverNearlyMeasured) {
  StepPredictor steps;
  const StepWork one{.rows = 1, .tokens = 1, .keys = 10};
  EXPECT_TRUE(std::isinf(steps.seconds(one)));
  for (int i = 0; i < 5; ++i) steps.observe(one, 0.01);
  EXPECT_NEAR(steps.seconds(one), 0.01, 0.001);
  EXPECT_TRUE(std::isfinite(steps.seconds({.rows = 2, .tokens = 2, .keys = 20})));
  EXPECT_TRUE(std::isinf(steps.seconds({.rows = 3, .tokens = 3, .keys = 30})));
}

TEST(StepPredictor, FollowsAMachineThatBecomesSlower) {
  RandomSequence draws(5, RandomStream::fuzz);
  Costs costs;
  StepPredictor steps;
  for (int i = 0; i < 300; ++i) {
    const StepWork work = any_work(draws);
    steps.observe(work, costs.of(work));
  }
  costs = {.step = 0.010, .row = 6e-4, .token = 2e-4, .key = 3e-6};
  const StepWork work{.rows = 30, .tokens = 30, .keys = 4000};
  EXPECT_LT(steps.seconds(work), 0.8 * costs.of(work));  // as it was
  for (int i = 0; i < 200; ++i) {
    const StepWork next = any_work(draws);
    steps.observe(next, costs.of(next));
  }
  EXPECT_NEAR(steps.seconds(work) / costs.of(work), 1, 0.35);
}

// Times that wander by half: a few steps in a hundred take longer than was said, and not many more, and most not much less.
TEST(StepPredictor, NineteenOfTwentyStepsTakeAtMostThat) {
  RandomSequence draws(6, RandomStream::fuzz);
  const Costs costs;
  StepPredictor steps;
  int longer = 0;
  constexpr int kSteps = 2000;
  double said = 0, took = 0;
  for (int i = 0; i < 100 + kSteps; ++i) {
    const StepWork work = any_work(draws);
    const double seconds = costs.of(work) * (1 + 0.5 * draws.below(1000) / 1000.0);
    if (i >= 100) {
      longer += seconds > steps.seconds(work);
      said += steps.seconds(work);
      took += seconds;
    }
    steps.observe(work, seconds);
  }
  EXPECT_LT(longer, kSteps / 10);
  EXPECT_GT(said / took, 1.05);  // half would take longer than what is expected in the middle
  EXPECT_LT(said / took, 1.4);
}

TEST(StepPredictor, NothingCostsLessThanNothing) {
  RandomSequence draws(7, RandomStream::fuzz);
  StepPredictor steps;
  for (int i = 0; i < 100; ++i) {
    const StepWork work = any_work(draws);
    steps.observe(work, 0.02 - 1e-7 * work.keys + 1e-5 * work.rows);  // keys would be cheaper than none
  }
  const StepWork work{.rows = 10, .tokens = 10, .keys = 1000};
  for (const StepWork& more : {StepWork{.rows = 1}, StepWork{.tokens = 1}, StepWork{.keys = 1000}}) {
    StepWork both = work;
    both += more;
    EXPECT_GE(steps.seconds(both), steps.seconds(work));
    both -= more;
    EXPECT_EQ(steps.seconds(both), steps.seconds(work));
  }
}

}  // namespace
}  // namespace lockstep
