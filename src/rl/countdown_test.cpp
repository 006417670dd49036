#include "rl/countdown.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "rl/countdown_environment.h"
#include "rl/countdown_verifier.h"

namespace lockstep {
namespace {
constexpr CountdownFormat kSteps{",", "=", ":", CountdownAnswer::steps};
constexpr CountdownFormat kExpression{",", "=", ":", CountdownAnswer::expression};

TEST(Countdown, ProblemsObeyTheRules) {
  for (const Split split : {Split::train, Split::held_out}) {
    for (std::uint64_t index = 0; index < 2000; ++index) {
      const auto problem = make_countdown_problem(split, 3, index);
      for (const int number : problem.numbers) EXPECT_TRUE(number >= 1 && number <= 30);
      EXPECT_TRUE(problem.target >= 1 && problem.target <= 99);
      EXPECT_EQ(countdown_split(problem.numbers, problem.target), split);
      EXPECT_TRUE(countdown_correct(problem.numbers, problem.target, problem.solution)) << problem.solution;
    }
  }
}

TEST(Countdown, TheSeedDecidesEverything) {
  const auto text = [](const CountdownProblem& p) { return countdown_prompt(p, kExpression) + p.solution; };
  std::set<std::string> texts;
  for (std::uint64_t index = 0; index < 500; ++index) {
    const auto problem = make_countdown_problem(Split::train, 7, index);
    EXPECT_EQ(text(problem), text(make_countdown_problem(Split::train, 7, index)));
    texts.insert(text(problem));
  }
  EXPECT_GT(texts.size(), 490u);
  EXPECT_NE(text(make_countdown_problem(Split::train, 7, 0)), text(make_countdown_problem(Split::train, 8, 0)));
  // Published: a change here changes every trained model.
  EXPECT_EQ(text(make_countdown_problem(Split::train, 1, 0)), "6,9,10=15:(10*9)/6");
  EXPECT_EQ(text(make_countdown_problem(Split::held_out, 1, 0)), "4,5,6=5:(4+6)-5");
}

TEST(Countdown, SplitsAreDisjointWhateverTheOrder) {
  for (std::uint64_t index = 0; index < 500; ++index) {
    auto problem = make_countdown_problem(Split::held_out, 2, index);
    std::sort(problem.numbers.begin(), problem.numbers.end());
    do {
      EXPECT_EQ(countdown_split(problem.numbers, problem.target), Split::held_out);
    } while (std::next_permutation(problem.numbers.begin(), problem.numbers.end()));
  }
  std::set<std::uint64_t> train, held_out;
  for (std::uint64_t index = 0; index < 20'000; ++index) {
    const auto t = make_countdown_problem(Split::train, 1, index), h = make_countdown_problem(Split::held_out, 2, index);
    train.insert(countdown_id(t.numbers, t.target));
    held_out.insert(countdown_id(h.numbers, h.target));
  }
  for (const std::uint64_t id : held_out) EXPECT_EQ(train.count(id), 0u);
}

// Over all problems there are: both splits cover all numbers and targets, and one in eight is held out.
TEST(Countdown, BothSplitsCover) {
  std::map<Split, std::size_t> count;
  std::map<Split, std::set<int>> numbers, targets;
  std::set<std::uint64_t> ids;
  for (int a = 1; a <= 30; ++a) {
    for (int b = a; b <= 30; ++b) {
      for (int c = b; c <= 30; ++c) {
        for (int target = 1; target <= 99; ++target) {
          if (countdown_solutions({a, b, c}, target).empty()) continue;
          const Split split = countdown_split({a, b, c}, target);
          ++count[split];
          numbers[split].insert({a, b, c});
          targets[split].insert(target);
          EXPECT_TRUE(ids.insert(countdown_id({a, b, c}, target)).second);
        }
      }
    }
  }
  const double share = static_cast<double>(count[Split::held_out]) / static_cast<double>(ids.size());
  EXPECT_NEAR(share, 0.125, 0.01);
  EXPECT_GT(ids.size(), 40'000u);
  for (const Split split : {Split::train, Split::held_out}) {
    EXPECT_EQ(numbers[split].size(), 30u);
    EXPECT_EQ(targets[split].size(), 99u);
  }
}

// All trees by plain enumeration: the solver finds a solution exactly where there is one.
bool solvable(std::array<int, 3> numbers, int target) {
  const auto apply = [](int a, char op, int b) {
    const int result = op == '+' ? a + b : op == '-' ? a - b : op == '*' ? a * b : b != 0 && a % b == 0 ? a / b : -1;
    return result > 99 ? -1 : result;
  };
  std::sort(numbers.begin(), numbers.end());
  do {
    const auto [a, b, c] = numbers;
    for (const char first : {'+', '-', '*', '/'}) {
      for (const char second : {'+', '-', '*', '/'}) {
        const int left = apply(a, first, b), right = apply(b, first, c);
        if (left >= 0 && apply(left, second, c) == target) return true;
        if (right >= 0 && apply(a, second, right) == target) return true;
      }
    }
  } while (std::next_permutation(numbers.begin(), numbers.end()));
  return false;
}

TEST(Countdown, SolverIsCompleteAndExact) {
  for (const auto& numbers : std::vector<std::array<int, 3>>{{3, 7, 12}, {1, 1, 1}, {30, 30, 30}, {2, 2, 9}, {1, 30, 29}, {5, 6, 5}}) {
    for (int target = 1; target <= 99; ++target) {
      const auto solutions = countdown_solutions(numbers, target);
      EXPECT_EQ(!solutions.empty(), solvable(numbers, target));
      std::set<std::string> texts;
      for (const auto& solution : solutions) {
        for (const auto& format : {kSteps, kExpression}) {
          const std::string text = countdown_completion(solution, format);
          EXPECT_TRUE(countdown_correct(numbers, target, text)) << text;
          EXPECT_TRUE(texts.insert(text).second) << text;
        }
      }
    }
  }
}

TEST(Countdown, Texts) {
  const CountdownProblem problem{{3, 7, 12}, 36, ""};
  EXPECT_EQ(countdown_prompt(problem, kExpression), "3,7,12=36:");
  EXPECT_EQ(countdown_prompt(problem, {" ", "=", ":", CountdownAnswer::steps}), "3 7 12=36:");
  const CountdownSolution left{{{12, '-', 7, 5}, {5, '*', 3, 15}}}, right{{{7, '-', 3, 4}, {12, '/', 4, 3}}};
  EXPECT_EQ(countdown_completion(left, kExpression), "(12-7)*3");
  EXPECT_EQ(countdown_completion(left, kSteps), "12-7=5,5*3=15");
  EXPECT_EQ(countdown_completion(right, kExpression), "12/(7-3)");
  EXPECT_EQ(countdown_completion(right, kSteps), "7-3=4,12/4=3");
  EXPECT_EQ(countdown_completion(countdown_solutions({3, 7, 12}, 22).front(), kExpression), "(12+7)+3");
}

TEST(Environment, Countdown) {
  const auto environment = make_countdown_environment();
  EXPECT_EQ(environment->name(), "countdown");
  for (std::uint64_t index = 0; index < 300; ++index) {
    const Problem problem = environment->problem(Split::held_out, 4, index);
    const std::string reference = environment->reference_completion(problem);
    EXPECT_EQ(environment->reward(problem, reference), 1.0);
    EXPECT_EQ(environment->reward(problem, reference + " "), 0.0);
    EXPECT_EQ(environment->reward(problem, ""), 0.0);
    EXPECT_EQ(environment->problem(Split::held_out, 4, index).prompt, problem.prompt);
  }
}

TEST(Environment, WrongNameOffersTheRightOne) {
  try {
    make_environment("countdwon");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(e.message().find("did you mean 'countdown'"), std::string::npos) << e.message();
  }
}

TEST(Environment, ForeignProblemsAreRefused) {
  const auto environment = make_countdown_environment();
  EXPECT_THROW(environment->reward(Problem{}, "1"), Error);
  EXPECT_THROW(environment->reference_completion(Problem{0, "x", {1, 1, 1, 99}}), Error);
}

}  // namespace
}  // namespace lockstep
