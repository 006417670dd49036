// A critic over rollouts of many turns: where windows end changes no advantage, turns bring their rewards, and a critic that is right finds the answer
// at which a rollout failed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <span>

#include "base/comparison_test_tools.h"
#include "rl/critic_test_tools.h"
#include "rl/lockbox_test_tools.h"

namespace lockstep {
namespace {

using CriticWindowsTest = CriticTest;

// A value for each state in the order in which they are asked for, wherever it stands.
class CountedValues : public FakeValues {
 public:
  std::vector<std::vector<float>> values(const std::vector<ValueDatum>& data) override {
    std::vector<std::vector<float>> all = FakeValues::values(data);
    std::size_t count = 0;
    for (std::size_t d = 0; d < data.size(); ++d)
      for (std::size_t i = 0; i < all[d].size(); ++i)
        if (data[d].weights[i] != 0) all[d][i] = 0.125f * static_cast<float>(1 + count++ * 5 % 11);
    return all;
  }
};

StepBatch batch_of_rollouts(const std::vector<Rollout>& rollouts) {
  StepBatch batch;
  batch.groups.push_back({.problem = {}, .rollouts = rollouts});
  for (const Rollout& rollout : rollouts)
    for (const Chain& chain : rollout.chains) batch.data.push_back(policy_datum(chain, 1));
  batch.begins = {0, batch.data.size()};
  return batch;
}

void write_token(Turn& turn, std::int32_t token) {
  turn.tokens.push_back(token);
  turn.sampling_logprobs.push_back(-0.5f);
}

std::vector<float> trained_numbers(const std::vector<PolicyDatum>& data, const std::function<float(std::size_t d, std::size_t row)>& number) {
  std::vector<float> all;
  for (std::size_t d = 0; d < data.size(); ++d) each_trained(data[d], [&](std::size_t row) { all.push_back(number(d, row)); });
  return all;
}

// Bits, over random rollouts: what the policy was shown may stand anywhere, and a rollout may be cut into windows anywhere: with equal values advantages
// and returns are the same. Where windows end with the rollout's reward instead, they are others.
TEST_F(CriticWindowsTest, WhatIsShownAndWhereWindowsEndChangesNoAdvantage) {
  settings.critic.gae = {.gamma = 0.99, .lambda = 0.9, .critic_lambda = 1, .whiten = true};
  RandomSequence random(5, RandomStream::shuffle, 0);
  for (int round = 0; round < 30; ++round) {
    std::vector<Rollout> plain, cut;
    for (int r = 0; r < 5; ++r) {
      const auto reward = static_cast<double>(random.below(2));
      Turn turn{.shown = {1}};
      Rollout& other = cut.emplace_back(Rollout{.chains = {{{Turn{.shown = {1, 2}}}}}, .ended = true, .reward = reward});
      for (std::uint32_t n = 1 + random.below(20); n > 0; --n) {
        const auto token = static_cast<std::int32_t>(10 + random.below(50));
        write_token(turn, token);
        std::vector<Turn>& turns = other.chains.back().turns;
        if (!turns.back().tokens.empty() && random.below(4) == 0) other.chains.push_back({{Turn{.shown = {3, 4, 5}}}});
        else if (!turns.back().tokens.empty() && random.below(3) == 0) turns.push_back(Turn{.shown = std::vector<std::int32_t>(random.below(3), 6)});
        write_token(other.chains.back().turns.back(), token);
      }
      plain.push_back(Rollout{.chains = {{{turn}}}, .ended = true, .reward = reward});
    }
    const auto judged = [&](const std::vector<Rollout>& rollouts, const CriticSettings& with) {
      StepBatch batch = batch_of_rollouts(rollouts);
      CountedValues values;
      Critic critic(values, with);
      critic.judge(batch, settings);
      critic.learn(optimizer_step(settings, 1e-3));
      for (const PolicyDatum& d : batch.data)
        for (std::size_t i = 0; i < d.weights.size(); ++i) EXPECT_TRUE(d.weights[i] != 0 || d.advantages[i] == 0);
      EXPECT_EQ(batch.values.size(), batch.data.size());
      return std::pair(trained_numbers(batch.data, [&](std::size_t d, std::size_t row) { return batch.data[d].advantages[row]; }),
                       trained_numbers(batch.data, [&](std::size_t d, std::size_t row) { return values.trained[0][d].returns[row]; }));
    };
    EXPECT_EQ(judged(cut, settings.critic), judged(plain, settings.critic)) << round;
    CriticSettings terminal = settings.critic;
    terminal.gae.carry = false;
    EXPECT_EQ(judged(plain, terminal), judged(plain, settings.critic)) << round;
    if (batch_of_rollouts(cut).data.size() > 7) {
      EXPECT_NE(judged(cut, terminal).first, judged(plain, settings.critic).first) << round;
    }
  }
}

TEST_F(CriticWindowsTest, WhatATurnBroughtComesWithItsLastToken) {
  Turn first{.shown = {1}, .reward = 0.5}, second{.shown = {2, 3}}, summary{.shown = {4}, .summary = true}, last{.shown = {5}};
  for (Turn* turn : {&first, &second, &summary, &last})
    for (std::int32_t token = 10; token < 12; ++token) write_token(*turn, token);
  const std::vector<Rollout> rollouts = {Rollout{.chains = {{{first, second, summary}}, {{last}}}, .ended = true, .reward = 1}};
  const auto advantages = [&] {
    StepBatch batch = batch_of_rollouts(rollouts);
    CountedValues values;
    Critic(values, settings.critic).judge(batch, settings);
    return trained_numbers(batch.data, [&](std::size_t d, std::size_t row) { return batch.data[d].advantages[row] + batch.values[d][row]; });
  };
  EXPECT_EQ(advantages(), (std::vector<float>{1.5, 1.5, 1, 1, 1, 1, 1, 1}));  // what comes behind each token
  settings.critic.gae.carry = false;
  EXPECT_EQ(advantages(), (std::vector<float>{1.5, 1.5, 1, 1, 1, 1, 1, 1}));  // the same, for each window ends with the reward
  settings.critic.gae.lambda = 0;
  // The next value: 1 + 5 n mod 11 eighths.
  EXPECT_EQ(advantages(), (std::vector<float>{0.75, 0.5f + 1.375f, 0.625, 1.25, 0.5, 1, 0.375, 1}));
  settings.critic.gae.carry = true;
  EXPECT_EQ(advantages(), (std::vector<float>{0.75, 0.5f + 1.375f, 0.625, 1.25, 0.5, 1.125, 0.375, 1}));
}

TEST_F(CriticWindowsTest, ARolloutThatIsCutOffInALaterWindowGoesOnThere) {
  settings.critic.bootstrap = true;
  Turn summary{.shown = {1}, .ended = true, .summary = true}, cut{.shown = {2}};
  write_token(summary, 10), write_token(cut, 11);
  StepBatch batch = batch_of_rollouts({Rollout{.chains = {{{summary}}, {{cut}}}}});
  CountedValues values;  // 1, 6 and 11 eighths
  Critic(values, settings.critic).judge(batch, settings);
  ASSERT_EQ(values.asked.size(), 2u);
  EXPECT_EQ(values.asked[0].tokens, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(values.asked[1].tokens, (std::vector<std::int32_t>{2, 11}));
  EXPECT_EQ(batch.data[0].advantages, (std::vector<float>{1.375f - 0.125f}));
  EXPECT_EQ(batch.data[1].advantages, (std::vector<float>{1.375f - 0.75f}));
}

// What a policy that is right at each door with `chance` may expect, read from what its window shows: the chance of all doors that are still closed.
class LockboxValues : public FakeValues {
 public:
  LockboxValues(const Tokenizer& tokenizer, double chance) : tokenizer(tokenizer), chance(chance) {}
  std::vector<std::vector<float>> values(const std::vector<ValueDatum>& data) override {
    std::vector<std::vector<float>> all = FakeValues::values(data);
    for (std::size_t d = 0; d < data.size(); ++d)
      for (std::size_t i = 0; i < all[d].size(); ++i)
        if (data[d].weights[i] != 0) all[d][i] = static_cast<float>(value_of(tokenizer.decode(std::span(data[d].tokens).first(i + 1), false)));
    return all;
  }
  double value_of(const std::string& window) const {
    const std::size_t mark = window.rfind('?');
    if (mark == std::string::npos) return 1;  // all are open
    std::size_t begin = mark - 1;
    while (window[begin - 1] >= '0' && window[begin - 1] <= '9') --begin;
    const int door = std::stoi(window.substr(begin, mark - 1 - begin));
    const std::string written = window.substr(mark + 1, 1);
    if (!written.empty() && written != LockboxPlayer::answer_of(window.substr(0, mark + 1))) return 0;
    return std::pow(chance, 24 - door + (written.empty() ? 1 : 0));
  }
  const Tokenizer& tokenizer;
  double chance;
};

// From value to value it is the wrong key that loses, and nothing else: not the keys before it, not summaries, not the ends of windows. Where windows end with
// the rollout's reward, their last tokens take the blame for what came later.
TEST_F(CriticWindowsTest, APerfectCriticFindsTheWrongKey) {
  const auto lockbox = make_environment("lockbox");
  LockboxPlayer player(tokenizer);
  player.right = 0.96;
  settings.environment = "lockbox";
  settings.compact_at = 72;
  settings.problems = 24;
  settings.rollouts = 2;
  settings.critic.gae.lambda = 0;
  RolloutSource source(*lockbox, tokenizer, player);
  struct Blame {
    double wrong = 0, routine = 0, ends = 0;  // means, of failed rollouts: of wrong keys, the largest of all others, of summaries' last tokens
    int failed = 0, windows = 0;
  };
  const auto blame = [&](ValuePort& values, bool carry) {
    settings.critic.gae.carry = carry;
    StepBatch batch = step_batch(*lockbox, source, settings, 0);
    Critic(values, settings.critic).judge(batch, settings);
    Blame found;
    std::size_t d = 0;
    for (const RolloutGroup& group : batch.groups)
      for (const Rollout& rollout : group.rollouts)
        for (std::size_t c = 0; c < rollout.chains.size(); ++c, ++d) {
          if (rollout.total_reward() > 0) continue;
          const bool last = c + 1 == rollout.chains.size();
          std::vector<double> advantages;
          each_trained(batch.data[d], [&](std::size_t row) { advantages.push_back(static_cast<double>(batch.data[d].advantages[row])); });
          const std::size_t wrong = last ? advantages.size() - 2 : advantages.size();  // a wrong answer is "0" and the end token
          for (std::size_t i = 0; i < advantages.size(); ++i) {
            if (i == wrong) found.wrong += advantages[i], ++found.failed;
            else if (!last && i + 1 == advantages.size()) found.ends += advantages[i], ++found.windows;
            else found.routine = worse_of(found.routine, std::abs(advantages[i]));
          }
        }
    found.wrong /= found.failed;
    found.ends /= found.windows;
    return found;
  };
  LockboxValues knows(tokenizer, player.right);
  const Blame carried = blame(knows, true);
  EXPECT_GT(carried.failed, 10);
  EXPECT_GT(carried.windows, 10);
  EXPECT_LT(carried.wrong, -0.3);
  EXPECT_LT(carried.routine, 0.05);
  EXPECT_NEAR(carried.ends, 0, 1e-6);
  EXPECT_LT(blame(knows, false).ends, -0.3);
  struct Zeros : FakeValues {  // the control: a critic that knows nothing finds nothing
    std::vector<std::vector<float>> values(const std::vector<ValueDatum>& data) override {
      std::vector<std::vector<float>> all;
      for (const ValueDatum& d : data) all.emplace_back(d.tokens.size(), 0.0f);
      return all;
    }
  } zeros;
  EXPECT_EQ(blame(zeros, true).wrong, 0);
}

}  // namespace
}  // namespace lockstep
