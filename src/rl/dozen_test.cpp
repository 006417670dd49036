#include "rl/dozen.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "rl/dozen_environment.h"
#include "rl/evaluation.h"

namespace lockstep {
namespace {

TEST(Dozen, Answers) {
  // Worked out by hand.
  const std::map<std::string, std::string> known = {{"reverse 4 7 1 9 9:", "9 9 1 7 4"},
                                                    {"sort 4 7 1 9 0:", "0 1 4 7 9"},
                                                    {"add 47 38:", "85"},
                                                    {"add 999 999:", "1998"},
                                                    {"subtract 85 38:", "47"},
                                                    {"subtract 7 7:", "0"},
                                                    {"maximum 3 81 15:", "81"},
                                                    {"count 3 3 1 3 5:", "2"},
                                                    {"parity 1 0 1 1 4:", "odd"},
                                                    {"parity 2 0 1 1 4:", "even"},
                                                    {"shift 2 3 8 1 5 6:", "1 5 6 3 8"},
                                                    {"deduplicate 3 3 1 3 5 1:", "3 1 5"},
                                                    {"interleave 1 2 3 | 4 5 6:", "1 4 2 5 3 6"},
                                                    {"compare 47 38:", ">"},
                                                    {"compare 38 47:", "<"},
                                                    {"compare 38 38:", "="},
                                                    {"remainder 47 5:", "2"}};
  std::set<std::string> tasks;
  for (const auto& [prompt, answer] : known) {
    EXPECT_EQ(dozen_answer(prompt), answer) << prompt;
    tasks.insert(prompt.substr(0, prompt.find(' ')));
  }
  EXPECT_EQ(tasks.size(), 12u);
  EXPECT_EQ(dozen_tasks().size(), 12u);
  for (const char* wrong : {"", "reverse", "reverse 4 7", "revers 4 7:", "reverse  4 7:", "reverse 4 7: ", "reverse 04 7:", "reverse 4 x:",
                            "interleave 1 2 3 4 5 6:", "subtract 3 4:", "remainder 4 0:"})
    EXPECT_EQ(dozen_answer(wrong), "") << wrong;
}

TEST(Dozen, SomeTasksAreAnEnvironment) {
  const auto some = make_environment("dozen-sort+add");
  EXPECT_EQ(some->domains(), (std::vector<std::string>{"sort", "add"}));
  for (std::uint64_t index = 0; index < 4; ++index) EXPECT_EQ(some->problem(Split::train, 1, index).domain, some->domains()[index % 2]);
  for (const char* wrong : {"dozen-sort+", "dozen-+sort", "dozen-sort+sort", "dozen-sort+ad", "dozen+sort", "sort+add", "dozen-"})
    EXPECT_THROW(make_environment(wrong), Error) << wrong;
}

TEST(Dozen, ProblemsAreTheSameEverywhereAndSplit) {
  for (const std::string& task : dozen_tasks()) {
    std::set<std::string> train, held_out, answers;
    for (const Split split : {Split::train, Split::held_out})
      for (std::uint64_t index = 0; index < 500; ++index) {
        const DozenProblem problem = make_dozen_problem(task, split, 3, index);
        EXPECT_EQ(problem.prompt, make_dozen_problem(task, split, 3, index).prompt);
        EXPECT_EQ(problem.answer, dozen_answer(problem.prompt)) << problem.prompt;  // the text says all
        EXPECT_FALSE(problem.answer.empty()) << problem.prompt;
        EXPECT_EQ(dozen_split(problem.prompt), split);
        (split == Split::train ? train : held_out).insert(problem.prompt);
        answers.insert(problem.answer);
      }
    for (const std::string& prompt : held_out) EXPECT_FALSE(train.contains(prompt)) << prompt;
    EXPECT_GE(answers.size(), task == "parity" ? 2u : task == "compare" ? 3u : 5u) << task;
  }
  EXPECT_THROW(make_dozen_problem("revers", Split::train, 1, 0), Error);
}

TEST(Dozen, EnvironmentsOfOneAndOfAll) {
  const auto all = make_environment("dozen");
  EXPECT_FALSE(all->many_turns());
  EXPECT_EQ(all->domains(), dozen_tasks());
  for (std::uint64_t index = 0; index < 24; ++index) EXPECT_EQ(all->problem(Split::train, 1, index).domain, dozen_tasks()[index % 12]);
  for (const std::string& task : dozen_tasks()) {
    const auto one = make_environment("dozen-" + task);
    EXPECT_EQ(one->name(), "dozen-" + task);
    EXPECT_EQ(one->domains(), std::vector<std::string>{task});
    EXPECT_EQ(held_out_problems(*one, 1, 2000).size(), 2000u) << task;
    const Problem problem = one->problem(Split::train, 1, 5);
    EXPECT_TRUE(problem.prompt.starts_with(task + " ")) << problem.prompt;
    EXPECT_EQ(one->begin(problem)->step(one->begin(problem)->reference()).reward, 1.0);
  }
  EXPECT_THROW(make_environment("dozen-revers"), Error);
  EXPECT_EQ(make_environment("countdown")->domains(), std::vector<std::string>{"countdown"});
}

// What is not the answer to the byte earns nothing.
TEST(Dozen, CheatsEarnNothing) {
  using namespace std::string_literals;
  for (const std::string& task : dozen_tasks()) {
    const auto environment = make_dozen_environment("dozen-" + task);
    for (std::uint64_t index = 0; index < 50; ++index) {
      const Problem problem = environment->problem(Split::train, 2, index);
      const std::string right = environment->reference_completion(problem),
                        other = environment->reference_completion(environment->problem(Split::train, 2, index + 1));
      EXPECT_EQ(environment->reward(problem, right), 1.0);
      std::vector<std::string> cheats = {"",          " " + right, right + " ", right + "\n",  "\n" + right,          right + right,  right + " " + right,
                                         right + ":", "=" + right, "0" + right, right + "\0"s, right + "<|eos|>",     problem.prompt, problem.prompt + right,
                                         "even odd",  "odd even",  "<=",        "> <",         "0 1 2 3 4 5 6 7 8 9", right + ","};
      if (other != right) cheats.push_back(other);
      for (const std::string& cheat : cheats) EXPECT_EQ(environment->reward(problem, cheat), 0.0) << problem.prompt << " " << cheat;
    }
  }
  EXPECT_THROW(make_dozen_environment("dozen")->reward(Problem{}, "1"), Error);
}

}  // namespace
}  // namespace lockstep
