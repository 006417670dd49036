#include "rl/evaluation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "rl/lockbox_test_tools.h"

namespace lockstep {
namespace {

struct Fixture : testing::Test {
  Tokenizer tokenizer = countdown_tokenizer();
  EchoEnvironment environment;
  FakeSampler sampler{tokenizer};
};
using EvaluationTest = Fixture;

TEST_F(EvaluationTest, CountsRightAnswers) {
  sampler.right = 0.5;
  const Evaluation e = evaluate(environment, tokenizer, sampler, {.problems = 40, .samples = 8, .at_once = 7});
  // What the fake answered, by its own random numbers.
  double right = 0;
  std::vector<double> any(40, 0);
  const auto problems = held_out_problems(environment, EvaluationSettings{}.seed, 40);
  for (std::size_t i = 0; i < 40; ++i) {
    for (std::uint64_t j = 0; j < 8; ++j) {
      RandomSequence random(derived_seed(EvaluationSettings{}.seed, SeedUse::evaluation, i), RandomStream::sampling, j);
      const bool solved = random.uniform() < 0.5;
      right += solved;
      if (solved) any[i] = 1;
    }
  }
  EXPECT_DOUBLE_EQ(e.pass_at_1.value, right / 320);
  EXPECT_DOUBLE_EQ(e.pass_at_k.value, static_cast<double>(std::count(any.begin(), any.end(), 1.0)) / 40);
  EXPECT_EQ(e.greedy.value, 1.0);
  EXPECT_EQ(e.ended.value, 1.0);
  EXPECT_LT(e.pass_at_1.low, e.pass_at_1.value);
  EXPECT_GT(e.pass_at_1.high, e.pass_at_1.value);
  EXPECT_EQ(e.tokens, 40 * 9 * 2);
}

// An answer that is right in part is not right, and earns its part.
TEST_F(EvaluationTest, PartsOfAnAnswerAreOfTheRewardAlone) {
  struct Half final : EchoEnvironment {
    double reward(const Problem& problem, std::string_view completion) const override { return EchoEnvironment::reward(problem, completion) / 2; }
  };
  sampler.right = 1;
  const Evaluation e = evaluate(Half(), tokenizer, sampler, {.problems = 6, .samples = 2});
  EXPECT_EQ(e.greedy.value, 0.0);
  EXPECT_EQ(e.greedy_reward.value, 0.5);
  EXPECT_EQ(to_json(e)["greedy_reward"]["value"], 0.5);
  EXPECT_EQ(evaluate(environment, tokenizer, sampler, {.problems = 6, .samples = 2}).greedy_reward.value, 1.0);
}

TEST_F(EvaluationTest, TheSplitIntoPartsChangesNothing) {
  const EvaluationSettings base{.problems = 30, .samples = 3};
  EvaluationSettings parts = base;
  parts.at_once = 4;
  EXPECT_EQ(to_json(evaluate(environment, tokenizer, sampler, base)).dump(), to_json(evaluate(environment, tokenizer, sampler, parts)).dump());
}

TEST_F(EvaluationTest, RequestsShareNoNoise) {
  evaluate(environment, tokenizer, sampler, {.problems = 40, .samples = 8});
  std::set<std::pair<std::uint64_t, std::int32_t>> keys;
  std::size_t sampled = 0;
  for (const SampleRequest& r : sampler.requests) {
    EXPECT_EQ(r.stop_tokens, std::vector<std::int32_t>{kTestEnd});
    EXPECT_EQ(r.max_tokens, 16);
    if (r.temperature == 0) continue;
    ++sampled;
    keys.insert({r.seed, r.sample_index});
  }
  EXPECT_EQ(sampled, 320u);
  EXPECT_EQ(keys.size(), 320u);
}

TEST_F(EvaluationTest, AnAnswerThatDoesNotEndEarnsNothing) {
  sampler.right = 1;
  sampler.cut = true;
  const Evaluation e = evaluate(environment, tokenizer, sampler, {.problems = 10, .samples = 2});
  EXPECT_EQ(e.pass_at_1.value, 0.0);
  EXPECT_EQ(e.greedy.value, 0.0);
  EXPECT_EQ(e.ended.value, 0.0);
}

// In one window the last answer, with all its sums, has no room; in windows of 72 tokens it has.
TEST_F(EvaluationTest, WindowsOfManyTurns) {
  const auto lockbox = make_environment("lockbox");
  LockboxPlayer player(tokenizer);
  player.right = 1;
  const Evaluation whole = evaluate(*lockbox, tokenizer, player, {.problems = 6, .samples = 2});
  EXPECT_EQ(whole.pass_at_1.value, 0.0);
  EXPECT_EQ(whole.ended.value, 0.0);
  const Evaluation windows = evaluate(*lockbox, tokenizer, player, {.problems = 6, .samples = 2, .compact_at = 72});
  EXPECT_EQ(windows.pass_at_1.value, 1.0);
  EXPECT_EQ(windows.greedy.value, 1.0);
  EXPECT_EQ(windows.ended.value, 1.0);
  EXPECT_THROW(evaluate(environment, tokenizer, sampler, {.problems = 6, .samples = 2, .compact_at = 72}), Error);
}

TEST_F(EvaluationTest, ProblemsAreDifferentOnesAndHeldOut) {
  const auto problems = held_out_problems(environment, 3, 40);
  std::set<std::uint64_t> ids;
  for (const Problem& p : problems) {
    ids.insert(p.id);
    EXPECT_GE(p.data[0], 40);
  }
  EXPECT_EQ(ids.size(), 40u);
  EXPECT_THROW(held_out_problems(environment, 3, 41), Error);
  EXPECT_THROW(held_out_problems(environment, 3, 0), Error);
  EXPECT_EQ(held_out_problems(*make_environment("countdown"), 1, 2000).size(), 2000u);
}

TEST(DerivedSeed, UsesAndItemsHaveNothingInCommon) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed : {0, 1, 2})
    for (const SeedUse use : {SeedUse::rollouts, SeedUse::evaluation, SeedUse::bootstrap})
      for (std::uint64_t item = 0; item < 100; ++item) seeds.insert(derived_seed(seed, use, item));
  EXPECT_EQ(seeds.size(), 900u);
  EXPECT_EQ(derived_seed(1, SeedUse::rollouts, 2), derived_seed(1, SeedUse::rollouts, 2));
}

}  // namespace
}  // namespace lockstep
