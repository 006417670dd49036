#include "rl/countdown_environment.h"

#include <algorithm>

#include "base/error.h"
#include "rl/countdown.h"
#include "rl/countdown_verifier.h"

namespace lockstep {
namespace {

// Problem::data is the three numbers and the target.
class CountdownEnvironment : public OneTurnEnvironment {
 public:
  std::string name() const override { return "countdown"; }

  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override {
    const CountdownProblem made = make_countdown_problem(split, seed, index);
    Problem problem;
    problem.id = countdown_id(made.numbers, made.target);
    problem.prompt = countdown_prompt(made);
    problem.data.assign(made.numbers.begin(), made.numbers.end());
    problem.data.push_back(made.target);
    return problem;
  }

  double reward(const Problem& problem, std::string_view completion) const override {
    const auto [numbers, target] = read(problem);
    return countdown_correct(numbers, target, completion) ? 1.0 : 0.0;
  }

  std::string reference_completion(const Problem& problem) const override {
    const auto [numbers, target] = read(problem);
    const auto solutions = countdown_solutions(numbers, target);
    if (solutions.empty()) fail(ErrorCode::invalid_argument, "problem '{}' has no solution", problem.prompt);
    return countdown_completion(solutions.front());
  }

 private:
  struct Task {
    std::array<int, 3> numbers;
    int target;
  };
  static Task read(const Problem& problem) {
    const bool right =
        problem.data.size() == 4 && std::all_of(problem.data.begin(), problem.data.end(), [](std::int64_t v) { return v >= 0 && v <= 1'000'000; });
    if (!right) fail(ErrorCode::invalid_argument, "problem '{}' is not one of countdown", problem.prompt);
    const auto at = [&](std::size_t i) { return static_cast<int>(problem.data[i]); };
    return {{at(0), at(1), at(2)}, at(3)};
  }
};

}  // namespace

std::unique_ptr<OneTurnEnvironment> make_countdown_environment() { return std::make_unique<CountdownEnvironment>(); }

}  // namespace lockstep
