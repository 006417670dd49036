// An episode in tokens: where windows end, what the next ones begin with, and what cuts a rollout off.
#include "rl/trajectory/play.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "rl/rl_test_tools.h"
#include "rl/trajectory/policy_datum.h"

namespace lockstep {
namespace {

struct PlayTest : testing::Test {
  Tokenizer tokenizer = countdown_tokenizer();
  EchoEnvironment echo;
  std::unique_ptr<Environment> lockbox = make_environment("lockbox");

  Turn written(const std::string& text, bool ended = true) const {
    Turn turn{.tokens = tokenizer.encode(text, false), .ended = ended};
    if (ended) turn.tokens.push_back(kTestEnd);
    turn.sampling_logprobs.assign(turn.tokens.size(), -1);
    return turn;
  }
  Rollout reference(std::uint64_t index, std::int64_t compact_at) const {
    Play play(*lockbox, lockbox->problem(Split::train, 1, index), tokenizer, {.compact_at = compact_at});
    while (!play.over()) play.take(written(play.reference()));
    return play.take_rollout();
  }
  static std::vector<std::int32_t> all_tokens(const Chain& chain) {
    std::vector<std::int32_t> all;
    for (const Turn& turn : chain.turns) {
      all.insert(all.end(), turn.shown.begin(), turn.shown.end());
      all.insert(all.end(), turn.tokens.begin(), turn.tokens.end());
    }
    return all;
  }
};

// The environment reads the whole answer; a trainer gets what the policy wrote.
TEST_F(PlayTest, WhatACheckPutInIsShownAndNeverTrained) {
  const Problem problem = echo.problem(Split::train, 1, 26);  // two digits
  const std::string answer = std::to_string(problem.data[0]);
  Turn turn;
  std::vector<std::uint8_t> put_in;
  for (const char digit : answer)  // a token each
    for (const std::int32_t id : tokenizer.encode(std::string(1, digit), false)) turn.tokens.push_back(id);
  ASSERT_EQ(turn.tokens.size(), 2u);
  turn.tokens.push_back(kTestEnd);
  turn.sampling_logprobs = {-1, -2, -3};
  turn.ended = true;
  const std::vector<std::int32_t> prompt = tokenizer.encode(problem.prompt, true);
  const auto rows = [&](const std::vector<std::uint8_t>& marks) {
    Play play(echo, problem, tokenizer, {});
    play.take(turn, marks);
    EXPECT_TRUE(play.over());
    const Rollout rollout = play.take_rollout();
    EXPECT_EQ(rollout.reward, 1);
    EXPECT_TRUE(rollout.ended);
    std::vector<std::int32_t> text = prompt;
    text.insert(text.end(), turn.tokens.begin(), turn.tokens.end());
    EXPECT_EQ(all_tokens(rollout.chains[0]), text);
    EXPECT_EQ(rollout.trained(), 3 - std::count(marks.begin(), marks.end(), 1));
    const PolicyDatum datum = policy_datum(rollout.chains[0], 1);
    std::vector<std::pair<float, float>> told;  // of the answer's rows: weight, log-probability
    for (std::size_t i = prompt.size() - 1; i < datum.weights.size(); ++i) told.emplace_back(datum.weights[i], datum.old_logprobs[i]);
    return told;
  };
  using Rows = std::vector<std::pair<float, float>>;
  EXPECT_EQ(rows({}), (Rows{{1, -1}, {1, -2}, {1, -3}}));
  EXPECT_EQ(rows({0, 1, 0}), (Rows{{1, -1}, {0, 0}, {1, -3}}));
  EXPECT_EQ(rows({1, 0, 0}), (Rows{{0, 0}, {1, -2}, {1, -3}}));
  EXPECT_EQ(rows({1, 1, 0}), (Rows{{0, 0}, {0, 0}, {1, -3}}));
  EXPECT_EQ(rows({0, 0, 0}), (Rows{{1, -1}, {1, -2}, {1, -3}}));
  Play play(echo, problem, tokenizer, {});
  EXPECT_THROW(play.take(turn, {0, 1}), Error);
  EXPECT_THROW(play.take(turn, {0, 0, 1}), Error);
}

TEST_F(PlayTest, OneAnswerIsOneChainOfOneTurn) {
  const Problem problem = echo.problem(Split::train, 1, 6);
  for (const auto& [answer, reward] : {std::pair(std::to_string(problem.data[0]), 1.0), std::pair(std::string("0"), 0.0)}) {
    Play play(echo, problem, tokenizer, {});
    EXPECT_FALSE(play.over());
    EXPECT_EQ(play.prompt(), tokenizer.encode(problem.prompt, true));
    EXPECT_EQ(play.reference(), std::to_string(problem.data[0]));
    Turn turn = written(answer);
    turn.weights_version = 5;
    play.take(turn);
    EXPECT_TRUE(play.over());
    EXPECT_TRUE(play.prompt().empty());
    const Rollout& rollout = play.rollout();
    ASSERT_EQ(rollout.chains.size(), 1u);
    ASSERT_EQ(rollout.chains[0].turns.size(), 1u);
    EXPECT_EQ(rollout.chains[0].turns[0].tokens, turn.tokens);
    EXPECT_EQ(rollout.chains[0].turns[0].weights_version, 5u);
    EXPECT_EQ(rollout.chains[0].turns[0].shown, tokenizer.encode(problem.prompt, true));
    EXPECT_TRUE(rollout.ended);
    EXPECT_EQ(rollout.reward, reward);
    EXPECT_EQ(rollout.total_reward(), reward);
    EXPECT_EQ(rollout.written(), std::ssize(turn.tokens));
    EXPECT_THROW(play.take(turn), Error);
  }
}

TEST_F(PlayTest, WithoutCompactionThereIsOneWindow) {
  const Rollout rollout = reference(0, 0);
  ASSERT_EQ(rollout.chains.size(), 1u);
  EXPECT_EQ(rollout.turns(), 25);
  EXPECT_EQ(rollout.reward, 1.0);
  EXPECT_EQ(rollout.longest(), 48);  // 24 sums, 23 commas, the end token
  for (const Turn& turn : rollout.chains[0].turns) EXPECT_FALSE(turn.summary);
}

// The sum survives three summaries in windows of 96 tokens.
TEST_F(PlayTest, WindowsEndWithASummaryAndBeginWithTheTask) {
  for (std::uint64_t index = 0; index < 30; ++index) {
    const Rollout rollout = reference(index, 72), whole = reference(index, 0);
    EXPECT_EQ(rollout.reward, 1.0);
    EXPECT_TRUE(rollout.ended);
    ASSERT_EQ(rollout.chains.size(), 4u) << index;
    EXPECT_LE(rollout.longest(), 16);
    const auto episode = lockbox->begin(lockbox->problem(Split::train, 1, index));
    const std::vector<std::int32_t> task = tokenizer.encode(episode->task(), true), word = tokenizer.encode(episode->summary_prompt(), false);
    std::vector<std::vector<std::int32_t>> answers, observations;
    for (std::size_t c = 0; c < 4; ++c) {
      const std::vector<Turn>& turns = rollout.chains[c].turns;
      EXPECT_LE(rollout.chains[c].length(), 96);
      EXPECT_EQ(rollout.chains[c].length(), std::ssize(all_tokens(rollout.chains[c])));
      std::vector<std::int32_t> begin = task;
      if (c > 0) {
        const std::vector<std::int32_t>& summary = rollout.chains[c - 1].turns.back().tokens;
        begin.insert(begin.end(), summary.begin(), summary.end());
      }
      ASSERT_GT(turns[0].shown.size(), begin.size());
      EXPECT_TRUE(std::equal(begin.begin(), begin.end(), turns[0].shown.begin()));
      std::int64_t length = 0;
      for (std::size_t t = 0; t < turns.size(); ++t) {
        EXPECT_EQ(turns[t].summary, c < 3 && t + 1 == turns.size());
        if (turns[t].summary) {
          EXPECT_EQ(turns[t].shown, word);
        } else {
          answers.push_back(turns[t].tokens);
          observations.emplace_back(turns[t].shown.begin() + (t == 0 ? std::ssize(begin) : 0), turns[t].shown.end());
          EXPECT_LE(length + std::ssize(turns[t].shown), 72);  // none was shown that made the window too long
        }
        length += std::ssize(turns[t].shown) + std::ssize(turns[t].tokens);
      }
      // The next observation would have: a digit, a comma, a number, a symbol and a question mark, or, of the last door, two tokens.
      if (c < 3) {
        EXPECT_GT(length - std::ssize(turns.back().shown) - std::ssize(turns.back().tokens) + 5, 72);
      }
    }
    // The same game as in one window, but for the last answer, whose calculation begins where the window does.
    ASSERT_EQ(std::ssize(answers), whole.turns());
    for (std::size_t t = 0; t < answers.size(); ++t) {
      const Turn& same = whole.chains[0].turns[t];
      if (t + 1 < answers.size()) {
        EXPECT_EQ(answers[t], same.tokens);
      }
      EXPECT_EQ(observations[t], std::vector(same.shown.begin() + (t == 0 ? std::ssize(task) : 0), same.shown.end())) << t;
    }
  }
}

// Windows that are too small for anything have one answer each, and the rollout arrives all the same.
TEST_F(PlayTest, EveryWindowGoesOn) {
  const Rollout rollout = reference(0, 1);
  EXPECT_EQ(rollout.reward, 1.0);
  ASSERT_EQ(rollout.chains.size(), 25u);
  for (std::size_t c = 0; c < 25; ++c) EXPECT_EQ(rollout.chains[c].turns.size(), c < 24 ? 2u : 1u);
}

TEST_F(PlayTest, ATurnWithoutAnEndCutsTheRolloutOff) {
  Play answer(*lockbox, lockbox->problem(Split::train, 1, 0), tokenizer, {.compact_at = 72});
  answer.take(written(answer.reference()));
  answer.take(written(answer.reference(), false));  // right, and not ended
  EXPECT_TRUE(answer.over());
  EXPECT_FALSE(answer.rollout().ended);
  EXPECT_EQ(answer.rollout().total_reward(), 0);
  EXPECT_EQ(answer.rollout().turns(), 2);

  Play summary(*lockbox, lockbox->problem(Split::train, 1, 0), tokenizer, {.compact_at = 1});
  summary.take(written(summary.reference()));
  summary.take(written(summary.reference(), false));
  EXPECT_TRUE(summary.over());
  EXPECT_FALSE(summary.rollout().ended);
  ASSERT_EQ(summary.rollout().chains.size(), 1u);
  EXPECT_TRUE(summary.rollout().chains[0].turns[1].summary);
}

TEST_F(PlayTest, ARolloutHasAMostOfTurns) {
  for (const std::int64_t compact_at : {0, 1}) {
    Play play(*lockbox, lockbox->problem(Split::train, 1, 0), tokenizer, {.compact_at = compact_at, .most_turns = 4});
    while (!play.over()) play.take(written(play.reference()));
    EXPECT_EQ(play.rollout().turns(), 4);
    EXPECT_FALSE(play.rollout().ended);
    EXPECT_EQ(play.rollout().total_reward(), 0);
    for (const Chain& chain : play.rollout().chains) EXPECT_FALSE(chain.turns.empty());
  }
}

TEST_F(PlayTest, AWrongKeyEndsTheRollout) {
  Play play(*lockbox, lockbox->problem(Split::train, 1, 0), tokenizer, {});
  play.take(written("0"));
  EXPECT_TRUE(play.over());
  EXPECT_TRUE(play.rollout().ended);  // by itself
  EXPECT_EQ(play.rollout().total_reward(), 0);
  EXPECT_THROW(Play(*lockbox, lockbox->problem(Split::train, 1, 0), tokenizer, {}).take(Turn{}), Error);
}

}  // namespace
}  // namespace lockstep
