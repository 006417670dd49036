// The game's problems and texts, and its episodes: what the reference earns, what cheats earn, and that an episode begun again gives the same.
#include "rl/lockbox.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "rl/evaluation.h"
#include "rl/lockbox_environment.h"

namespace lockstep {
namespace {

LockboxProblem known_lockbox() {
  LockboxProblem problem{.keys = {3, 1, 4, 2, 1, 3, 2, 4}};
  for (std::size_t i = 0; i < kLockboxDoors; ++i) problem.symbols[i] = static_cast<int>(i % 8), problem.digits[i] = static_cast<int>(i % 10);
  return problem;
}

Problem known_lockbox_problem() {
  const LockboxProblem made = known_lockbox();
  Problem problem{.id = 1, .prompt = "known", .data = {made.keys.begin(), made.keys.end()}};
  problem.data.insert(problem.data.end(), made.symbols.begin(), made.symbols.end());
  problem.data.insert(problem.data.end(), made.digits.begin(), made.digits.end());
  return problem;
}

TEST(Lockbox, ProblemsObeyTheRules) {
  std::set<std::uint64_t> train, held_out;
  std::array<int, kLockboxKeys + 1> keys{};
  for (const Split split : {Split::train, Split::held_out})
    for (std::uint64_t index = 0; index < 2000; ++index) {
      const LockboxProblem problem = make_lockbox_problem(split, 3, index);
      EXPECT_EQ(problem, make_lockbox_problem(split, 3, index));
      EXPECT_EQ(lockbox_split(problem), split);
      for (const int key : problem.keys) {
        ASSERT_TRUE(key >= 1 && key <= kLockboxKeys) << key;
        ++keys[static_cast<std::size_t>(key)];
      }
      for (const int symbol : problem.symbols) ASSERT_TRUE(symbol >= 0 && symbol < kLockboxSymbols) << symbol;
      for (const int digit : problem.digits) ASSERT_TRUE(digit >= 0 && digit <= 9) << digit;
      (split == Split::train ? train : held_out).insert(lockbox_id(problem));
    }
  EXPECT_EQ(train.size(), 2000u);
  EXPECT_EQ(held_out.size(), 2000u);
  for (const std::uint64_t id : held_out) EXPECT_FALSE(train.contains(id));
  for (int key = 1; key <= kLockboxKeys; ++key) EXPECT_NEAR(keys[static_cast<std::size_t>(key)], 8000, 400);
  EXPECT_NE(make_lockbox_problem(Split::train, 3, 0), make_lockbox_problem(Split::train, 4, 0));
  EXPECT_EQ(held_out_problems(*make_environment("lockbox"), 1, 500).size(), 500u);
}

TEST(Lockbox, Texts) {
  const LockboxProblem problem = known_lockbox();
  EXPECT_EQ(lockbox_task(problem), "A3B1C4D2E1F3G2H4:");
  EXPECT_EQ(lockbox_door(problem, 2), "3C?");
  EXPECT_EQ(lockbox_opened(problem, 2), "2,4D?");
  EXPECT_EQ(lockbox_opened(problem, 23), "3=");
  EXPECT_EQ(lockbox_key(problem, 2), "4");
  EXPECT_EQ(lockbox_sum(problem), (45 + 45 + 6) % 10);
  const auto environment = make_environment("lockbox");
  EXPECT_TRUE(environment->many_turns());
  const Problem made = environment->problem(Split::train, 1, 0);
  const auto episode = environment->begin(made);
  EXPECT_EQ(made.prompt, episode->task() + episode->first());
}

TEST(Lockbox, TheReferenceOpensEveryDoorAndKnowsTheSum) {
  const auto environment = make_environment("lockbox");
  for (std::uint64_t index = 0; index < 100; ++index) {
    const auto episode = environment->begin(environment->problem(Split::held_out, 4, index));
    for (int door = 0; door < kLockboxDoors; ++door) {
      EXPECT_EQ(episode->reference().size(), 1u);
      const EpisodeStep step = episode->step(episode->reference());
      EXPECT_EQ(step.reward, 0);
      ASSERT_FALSE(step.done) << door;
    }
    const EpisodeStep last = episode->step(episode->reference());
    EXPECT_TRUE(last.done);
    EXPECT_EQ(last.reward, 1.0);
    EXPECT_TRUE(last.observation.empty());
    EXPECT_THROW(episode->step("1"), Error);
  }
}

// What it writes where a window ends is what the next one needs: with windows of any length it arrives at the sum.
TEST(Lockbox, ReferenceSummariesCarryTheSum) {
  const auto environment = make_environment("lockbox");
  RandomSequence random(11, RandomStream::shuffle, 0);
  for (std::uint64_t index = 0; index < 100; ++index) {
    const auto episode = environment->begin(environment->problem(Split::train, 5, index));
    int sum = 0, last = -1;
    EpisodeStep step;
    for (int door = 0; door < kLockboxDoors; ++door) {
      step = episode->step(episode->reference());
      if (last >= 0) sum += last;
      last = step.observation.at(0) - '0';
      if (random.below(3) > 0) continue;
      EXPECT_EQ(episode->reference_summary().back() - '0', sum % 10) << door;
      episode->next_window();
      EXPECT_EQ(episode->reference_summary(), std::to_string(sum % 10));  // nothing more was shown
    }
    EXPECT_EQ(episode->step(episode->reference()).reward, 1.0);
  }
}

TEST(Lockbox, AWrongKeyEndsTheGame) {
  const auto environment = make_environment("lockbox");
  for (const int doors : {0, 1, 23}) {
    const auto episode = environment->begin(known_lockbox_problem());
    for (int door = 0; door < doors; ++door) ASSERT_FALSE(episode->step(episode->reference()).done);
    const EpisodeStep step = episode->step(episode->reference() == "1" ? "2" : "1");
    EXPECT_TRUE(step.done);
    EXPECT_EQ(step.reward, 0);
  }
}

TEST(Lockbox, EveryCheatEarnsNothing) {
  using namespace std::string_literals;
  // At the first door, whose key is 3.
  const std::vector<std::string> keys = {"",
                                         "0",
                                         "1",
                                         "5",
                                         "33",
                                         "03",
                                         "3 ",
                                         " 3",
                                         "3\n",
                                         "\n3",
                                         "+3",
                                         "3.",
                                         "3,",
                                         ",3",
                                         "3,1",
                                         "1,3",
                                         "1234",
                                         "3?",
                                         "A3",
                                         "A?3",
                                         "key 3",
                                         "3<|eos|>",
                                         "#",
                                         "3#",
                                         "three",
                                         "\0"s,
                                         "3\0"s,
                                         "\xd9\xa3",
                                         "\xef\xbc\x93",
                                         "\xff\xfe"
                                         "3",
                                         "3\r",
                                         "3\t",
                                         "(3)",
                                         "3 3",
                                         "=",
                                         "3=",
                                         "\xe2\x91\xa2",
                                         "3\xe2\x80\x8b"};
  const auto environment = make_environment("lockbox");
  for (const std::string& cheat : keys) {
    const EpisodeStep step = environment->begin(known_lockbox_problem())->step(cheat);
    EXPECT_TRUE(step.done) << cheat;
    EXPECT_EQ(step.reward, 0) << cheat;
  }
  // At the end, where the sum is 96: 6.
  const std::vector<std::string> sums = {"",           "5",
                                         "96",         "06",
                                         "60",         "6 ",
                                         " 6",         "6\n",
                                         "\n6",        "6,",
                                         ",6",         "6,,6",
                                         "6,5",        "6,6,",
                                         ",",          "6;6",
                                         "6 6",        "6, 6",
                                         "6,\n6",      "=6",
                                         "6=",         "3=6",
                                         "+6",         "-6",
                                         "6.0",        "6.",
                                         "0123456789", "0,1,2,3,4,5,6,7,8,9",
                                         "#6",         "six",
                                         "6#",         "sum 6",
                                         "96%10",      "6\0"s,
                                         "\0"s,        "6,6\0"s,
                                         "\xd9\xa6",   "\xef\xbc\x96",
                                         "6<|eos|>",   "10,6",
                                         "6,16",       "a,6",
                                         "6,a",        "6\xe2\x80\x8b",
                                         "(6)",        "6\r"};
  for (const std::string& cheat : sums) {
    const auto episode = environment->begin(known_lockbox_problem());
    for (int door = 0; door < kLockboxDoors; ++door) ASSERT_FALSE(episode->step(episode->reference()).done);
    const EpisodeStep step = episode->step(cheat);
    EXPECT_TRUE(step.done) << cheat;
    EXPECT_EQ(step.reward, 0) << cheat;
  }
  for (const char* right : {"6", "0,6", "9,9,9,6"}) EXPECT_TRUE(lockbox_correct(known_lockbox(), right)) << right;  // calculations on the way are free
}

TEST(Lockbox, AnEpisodeBegunAgainGivesTheSame) {
  const auto environment = make_environment("lockbox");
  RandomSequence random(3, RandomStream::shuffle, 0);
  for (std::uint64_t index = 0; index < 200; ++index) {
    const Problem problem = environment->problem(Split::train, 9, index);
    const auto one = environment->begin(problem);
    std::vector<std::string> answers;
    std::vector<EpisodeStep> steps;
    const auto disturbing = environment->begin(problem);  // episodes know nothing of each other
    bool disturbed = false;
    for (bool done = false; !done;) {
      answers.push_back(random.below(30) == 0 ? "0" : one->reference());
      if (random.below(5) == 0) one->next_window();  // nor does it matter to the game where windows end
      steps.push_back(one->step(answers.back()));
      done = steps.back().done;
      if (!disturbed) disturbed = disturbing->step("4").done;
    }
    const auto again = make_environment("lockbox")->problem(Split::train, 9, index);
    const auto other_environment = make_environment("lockbox");
    const auto two = other_environment->begin(again);
    EXPECT_EQ(two->task(), one->task());
    EXPECT_EQ(two->first(), one->first());
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const EpisodeStep step = two->step(answers[i]);
      EXPECT_EQ(step.observation, steps[i].observation);
      EXPECT_EQ(step.reward, steps[i].reward);
      EXPECT_EQ(step.done, steps[i].done);
    }
  }
}

TEST(Lockbox, ForeignProblemsAreRefused) {
  const auto environment = make_environment("lockbox");
  EXPECT_THROW(environment->begin(Problem{}), Error);
  Problem problem = known_lockbox_problem();
  EXPECT_NO_THROW(environment->begin(problem));
  for (const std::size_t place : {0u, 8u, 55u}) {
    Problem wrong = problem;
    wrong.data[place] = 11;
    EXPECT_THROW(environment->begin(wrong), Error) << place;
  }
  problem.data.pop_back();
  EXPECT_THROW(environment->begin(problem), Error);
}

}  // namespace
}  // namespace lockstep
