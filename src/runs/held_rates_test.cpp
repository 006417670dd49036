#include "runs/held_rates.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace lockstep {
namespace {

// Problem i of the batch is of kind kinds[i], with one sequence of two targets, of which the second is the answer.
SftProblems batch_of(const std::vector<std::size_t>& kinds) {
  SftProblems batch;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    batch.sequences.push_back({.tokens = {1, 2}, .targets = {2, 3}, .weights = {0, 1}, .advantages = {}, .old_logprobs = {}});
    batch.problems.push_back({.kind = kinds[i], .first = i, .count = 1});
    batch.answers.push_back({1});
  }
  return batch;
}

TEST(HeldRates, AKindThatIsKnownIsMeasuredAndNotTrained) {
  HeldRates held(0.5, {"easy", "hard"}, 1);
  const std::vector<std::size_t> kinds = {0, 1};
  for (int step = 0; step < 40; ++step) held.measure(batch_of(kinds), {{-9, -0.1f}, {-9, -4}});
  EXPECT_GT(held.rates()["easy"].get<double>(), 0.5);
  EXPECT_NEAR(held.rates()["hard"].get<double>(), std::exp(-4.0) * (1 - std::pow(0.97, 40)), 1e-6);
  SftProblems batch = batch_of(kinds);
  held.mask(batch);
  EXPECT_EQ(batch.sequences[0].weights, (std::vector<float>{0, 0}));
  EXPECT_EQ(batch.sequences[1].weights, (std::vector<float>{0, 1}));
  // Of a problem of several windows none is trained.
  SftProblems windows = batch_of({0, 0});
  windows.problems = {{.kind = 0, .first = 0, .count = 2}};
  held.mask(windows);
  for (const TrainSequence& window : windows.sequences) EXPECT_EQ(window.weights, (std::vector<float>{0, 0}));
  // Untrained problems are measured all the same, and a kind that is forgotten comes back.
  for (int step = 0; step < 40; ++step) held.measure(batch, {{-9, -6}, {-9, -4}});
  SftProblems again = batch_of(kinds);
  held.mask(again);
  EXPECT_EQ(again.sequences[0].weights, (std::vector<float>{0, 1}));
  SftProblems told = batch_of(kinds);
  for (SftProblem& problem : told.problems) problem.measured = false;
  const nlohmann::ordered_json before = held.rates();
  held.measure(told, {{0, 0}, {0, 0}});
  EXPECT_EQ(held.rates(), before);
}

TEST(HeldRates, TheLowestIsAlwaysTaughtAndDrawnFirst) {
  HeldRates held(0.1, {"a", "b", "c"}, 1);
  for (int step = 0; step < 200; ++step) held.measure(batch_of({0, 1, 2}), {{0, 0}, {0, -0.5f}, {0, -0.1f}});
  SftProblems batch = batch_of({0, 1, 2});
  held.mask(batch);
  EXPECT_EQ(batch.sequences[0].weights[1], 0);
  EXPECT_EQ(batch.sequences[1].weights[1], 1);
  EXPECT_EQ(batch.sequences[2].weights[1], 0);
  std::vector<int> counts(3);
  for (std::int64_t step = 0; step < 200; ++step) {
    const std::vector<std::size_t> drawn = held.draw(step, 7);
    ASSERT_EQ(drawn.size(), 7u);
    EXPECT_EQ(drawn[0], 1u);
    for (std::size_t i = 1; i < drawn.size(); ++i) ++counts[drawn[i]];
  }
  EXPECT_NEAR(counts[0], 67, 30);  // of 1200, an eighteenth each, and sixteen
  EXPECT_NEAR(counts[1], 1067, 45);
}

TEST(HeldRates, GoesOnFromWhatWasKept) {
  HeldRates held(0.5, {"a", "b"}, 7), other(0.5, {"a", "b"}, 7);
  for (int step = 0; step < 30; ++step) held.measure(batch_of({0, 1}), {{0, -0.3f}, {0, -2.0f}});
  EXPECT_NE(held.draw(3, 16), other.draw(3, 16));
  other.restore(nlohmann::ordered_json::parse(held.rates().dump()));
  EXPECT_EQ(other.rates(), held.rates());
  EXPECT_EQ(held.draw(3, 16), other.draw(3, 16));
  EXPECT_THROW(other.restore({{"a", 0.5}}), Error);
  EXPECT_THROW(other.restore({{"a", 0.5}, {"c", 0.5}}), Error);
  EXPECT_THROW(HeldRates(0.5, {}, 1), Error);
}

}  // namespace
}  // namespace lockstep
