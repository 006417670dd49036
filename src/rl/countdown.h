// The game Countdown: make a target from three numbers with + - * /, each number used exactly once.
//   CountdownProblem p = make_countdown_problem(Split::train, seed, index); std::string text = countdown_prompt(p);
// Generates problems (seeded, solvable by construction, two disjoint splits), all their solutions, and their texts. The grader
// (countdown_verifier.h) shares no code with this file. Knows no model. Thread-safe (pure functions).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rl/environment.h"

namespace lockstep {

struct CountdownProblem {
  std::array<int, 3> numbers{};  // 1 to 30 each, in the order of the prompt
  int target = 0;                // 1 to 99
  std::string solution;          // an expression that reaches the target: the one the problem was made from
};

// One operation on integers of 0 to 99, left >= right, division without remainder.
struct CountdownStep {
  int left;
  char operation;
  int right;
  int result;
};
using CountdownSolution = std::array<CountdownStep, 2>;  // the second step uses the first one's result and the third number

enum class CountdownAnswer { expression, steps };  // "(12*3)*7" or "12*3=36,36*7=252"

// The text format of problems and answers, defined only here.
struct CountdownFormat {
  std::string_view between_numbers = " ";
  std::string_view before_target = "=";
  std::string_view end_of_prompt = ":";
  CountdownAnswer answer = CountdownAnswer::steps;
};
inline constexpr CountdownFormat kCountdownFormat{};

// The same arguments give the same problem on every machine. Sampled by rejection: numbers, their order, the operations and
// the shape of the tree are uniform over all that obey the rules and lie in the split.
CountdownProblem make_countdown_problem(Split split, std::uint64_t seed, std::uint64_t index);

// An id that does not depend on the order of the numbers; it decides the split: one id in eight is held out.
std::uint64_t countdown_id(const std::array<int, 3>& numbers, int target);
Split countdown_split(const std::array<int, 3>& numbers, int target);

// All solutions under the rules of CountdownStep, each once (a + b and b + a are one), the canonical one first: the
// cheapest operations (+ 0, - 1, * 2, / 3; of both, then of the second), then the smallest number last. Empty when none.
std::vector<CountdownSolution> countdown_solutions(const std::array<int, 3>& numbers, int target);

std::string countdown_prompt(const CountdownProblem& problem, const CountdownFormat& format = kCountdownFormat);
std::string countdown_completion(const CountdownSolution& solution, const CountdownFormat& format = kCountdownFormat);

}  // namespace lockstep
