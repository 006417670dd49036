#include "rl/countdown.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"

namespace lockstep {
namespace {
constexpr std::string_view kOperations = "+-*/";
constexpr int kLargestNumber = 30, kLargestValue = 99;
constexpr std::uint64_t kSplitSeed = 0x436F756E74646F77;  // "Countdow": fixed for ever, or the splits would leak
constexpr std::uint64_t kHeldOutShare = 8;

// left op right when it is an integer of 0 to 99.
std::optional<int> result_of(int left, char operation, int right) {
  int result = 0;
  switch (operation) {
    case '+':
      result = left + right;
      break;
    case '-':
      result = left - right;
      break;
    case '*':
      result = left * right;
      break;
    default:
      if (right == 0 || left % right != 0) return std::nullopt;
      result = left / right;
  }
  if (result < 0 || result > kLargestValue) return std::nullopt;
  return result;
}

std::string group(int left, char operation, int right) { return fmt::format("({}{}{})", left, operation, right); }

// The first step keeps its parentheses even where precedence makes them superfluous: every answer to every problem then
// has the same number of symbols.
std::string expression_of(const CountdownSolution& solution) {
  const auto& [first, second] = solution;
  const std::string inner = group(first.left, first.operation, first.right);
  return second.left == first.result ? fmt::format("{}{}{}", inner, second.operation, second.right)
                                     : fmt::format("{}{}{}", second.left, second.operation, inner);
}

std::string steps_of(const CountdownSolution& solution) {
  const auto& [a, b] = solution;
  return fmt::format("{}{}{}={},{}{}{}={}", a.left, a.operation, a.right, a.result, b.left, b.operation, b.right, b.result);
}
}  // namespace

std::uint64_t countdown_id(const std::array<int, 3>& numbers, int target) {
  std::array<int, 3> sorted = numbers;
  std::sort(sorted.begin(), sorted.end());
  const std::string key = fmt::format("{},{},{}={}", sorted[0], sorted[1], sorted[2], target);
  return xxh3(key.data(), key.size(), kSplitSeed);
}

Split countdown_split(const std::array<int, 3>& numbers, int target) {
  return countdown_id(numbers, target) % kHeldOutShare == 0 ? Split::held_out : Split::train;
}

CountdownProblem make_countdown_problem(Split split, std::uint64_t seed, std::uint64_t index) {
  RandomSequence random(seed, RandomStream::environment, index);
  for (;;) {
    CountdownProblem problem;
    for (int& number : problem.numbers) number = 1 + static_cast<int>(random.below(kLargestNumber));
    std::array<int, 3> order = problem.numbers;
    for (std::uint32_t i = 2; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
    const char first = kOperations[random.below(4)], second = kOperations[random.below(4)];
    const bool inner_left = random.below(2) == 0;  // (a first b) second c, or a second (b first c)
    const auto inner = inner_left ? result_of(order[0], first, order[1]) : result_of(order[1], first, order[2]);
    if (!inner) continue;
    const auto target = inner_left ? result_of(*inner, second, order[2]) : result_of(order[0], second, *inner);
    if (!target || *target < 1) continue;
    if (countdown_split(problem.numbers, *target) != split) continue;
    problem.target = *target;
    problem.solution = inner_left ? fmt::format("{}{}{}", group(order[0], first, order[1]), second, order[2])
                                  : fmt::format("{}{}{}", order[0], second, group(order[1], first, order[2]));
    return problem;
  }
}

std::vector<CountdownSolution> countdown_solutions(const std::array<int, 3>& numbers, int target) {
  struct Ranked {
    std::tuple<int, int, int, int> key;
    CountdownSolution solution;
  };
  std::array<int, 3> sorted = numbers;
  std::sort(sorted.begin(), sorted.end());
  std::vector<Ranked> found;
  for (std::size_t last = 0; last < 3; ++last) {
    if (last > 0 && sorted[last] == sorted[last - 1]) continue;  // the same number again
    const int low = sorted[last == 0 ? 1 : 0], high = sorted[last == 2 ? 1 : 2], rest = sorted[last];
    for (std::size_t i = 0; i < kOperations.size(); ++i) {
      const auto inner = result_of(high, kOperations[i], low);
      if (!inner) continue;
      const int left = std::max(*inner, rest), right = std::min(*inner, rest);
      for (std::size_t j = 0; j < kOperations.size(); ++j) {
        if (result_of(left, kOperations[j], right) != target) continue;
        const int cost = static_cast<int>(i + j);
        found.push_back(
            {{cost, static_cast<int>(j), rest, high}, {CountdownStep{high, kOperations[i], low, *inner}, CountdownStep{left, kOperations[j], right, target}}});
      }
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Ranked& a, const Ranked& b) { return a.key < b.key; });
  std::vector<CountdownSolution> solutions;
  for (const Ranked& ranked : found) solutions.push_back(ranked.solution);
  return solutions;
}

std::string countdown_prompt(const CountdownProblem& problem, const CountdownFormat& format) {
  return fmt::format("{}{}{}", fmt::join(problem.numbers, format.between_numbers), format.before_target, problem.target) + std::string(format.end_of_prompt);
}

std::string countdown_completion(const CountdownSolution& solution, const CountdownFormat& format) {
  return format.answer == CountdownAnswer::steps ? steps_of(solution) : expression_of(solution);
}

}  // namespace lockstep
