#include "rl/countdown_verifier.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>

#include "rl/countdown.h"

namespace lockstep {
namespace {

struct Case {
  std::vector<int> numbers;
  int target = 0;
  std::string answer, why;
};

std::string unescape(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
      continue;
    }
    const char kind = text.at(++i);
    if (kind == 'x') {
      bytes += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      bytes += kind == 'n' ? '\n' : kind == 't' ? '\t' : '\\';
    }
  }
  return bytes;
}

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream file(path);
  std::vector<Case> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t first = line.find('\t'), second = line.find('\t', first + 1), equals = line.find('=');
    Case read;
    std::istringstream numbers(line.substr(0, equals));
    for (std::string number; std::getline(numbers, number, ',');) read.numbers.push_back(std::stoi(number));
    read.target = std::stoi(line.substr(equals + 1, first - equals - 1));
    read.answer = unescape(line.substr(first + 1, second - first - 1));
    read.why = line.substr(second + 1);
    cases.push_back(std::move(read));
  }
  return cases;
}

TEST(CountdownVerifier, EveryCheatEarnsNothing) {
  const auto cheats = read_cases(LOCKSTEP_SOURCE_DIR "/tests/rl/countdown_cheats.txt");
  EXPECT_GE(cheats.size(), 60u);
  for (const Case& cheat : cheats) {
    EXPECT_FALSE(countdown_correct(cheat.numbers, cheat.target, cheat.answer)) << cheat.answer << ": " << cheat.why;
  }
}

TEST(CountdownVerifier, EverySolutionOfThousandsIsRight) {
  const CountdownFormat steps{",", "=", ":", CountdownAnswer::steps};
  const CountdownFormat expression{",", "=", ":", CountdownAnswer::expression};
  std::size_t count = 0;
  for (std::uint64_t index = 0; index < 4000; ++index) {
    const auto problem = make_countdown_problem(index % 2 ? Split::train : Split::held_out, 11, index);
    EXPECT_TRUE(countdown_correct(problem.numbers, problem.target, problem.solution)) << problem.solution;
    const auto solutions = countdown_solutions(problem.numbers, problem.target);
    ASSERT_FALSE(solutions.empty()) << problem.solution;
    for (const CountdownSolution& solution : solutions) {
      for (const std::string& answer : {countdown_completion(solution, steps), countdown_completion(solution, expression)}) {
        EXPECT_TRUE(countdown_correct(problem.numbers, problem.target, answer)) << answer;
        EXPECT_FALSE(countdown_correct(problem.numbers, problem.target + 1, answer)) << answer;
        ++count;
      }
    }
  }
  EXPECT_GT(count, 10'000u);
}

TEST(CountdownVerifier, HonestAnswersInOddClothes) {
  const std::vector<int> numbers = {3, 4, 5};
  for (const char* answer : {"(3+4)*5", "5*(3+4)", "((3+4)*5)", "(((3)+(4))*(5))", "3+4=7,7*5=35", "4+3=7,5*7=35", "((((((((3+4)*5)))))))"}) {
    EXPECT_TRUE(countdown_correct(numbers, 35, answer)) << answer;
  }
  EXPECT_TRUE(countdown_correct(std::vector{8, 3, 8}, 3, "8/8*3"));
  EXPECT_TRUE(countdown_correct(std::vector{3, 8, 8}, 3, "3/8*8"));          // a fraction on the way
  EXPECT_TRUE(countdown_correct(std::vector{3, 3, 8, 8}, 24, "8/(3-8/3)"));  // the classic that needs fractions
  EXPECT_TRUE(countdown_correct(std::vector{3, 4, 5}, 4, "3-4+5"));          // a negative value on the way
  EXPECT_TRUE(countdown_correct(std::vector{3, 3, 5}, 5, "3-3=0,5+0=5"));
  EXPECT_TRUE(countdown_correct(std::vector{0, 7}, 7, "7-0"));
  EXPECT_TRUE(countdown_correct(std::vector{7}, 7, "7"));
}

TEST(CountdownVerifier, LimitsHold) {
  std::vector<int> numbers(16, 1'000'000);
  std::string product = "1000000*1000000*1000000*1000000";
  EXPECT_FALSE(countdown_correct(std::span(numbers).first(4), 0, product));  // overflows 64 bits, and is wrong
  EXPECT_FALSE(countdown_correct(numbers, 1, std::string(65, '1')));
  std::vector<int> ones(16, 1);
  std::string sum = "1";
  for (int i = 1; i < 16; ++i) sum += "+1";
  EXPECT_TRUE(countdown_correct(ones, 16, sum));
  ones.push_back(1);
  EXPECT_FALSE(countdown_correct(ones, 17, sum + "+1"));
  EXPECT_FALSE(countdown_correct({}, 0, "0"));
  EXPECT_FALSE(countdown_correct(std::vector{-3, 4}, 1, "4-3"));
}

// A second opinion that shares nothing with the verifier: texts cut at signs, a shunting yard for the value.
struct Fraction {
  __int128 top = 0, bottom = 1;
};

std::optional<Fraction> operate(Fraction a, char op, Fraction b) {
  if (op == '+') return Fraction{a.top * b.bottom + b.top * a.bottom, a.bottom * b.bottom};
  if (op == '-') return Fraction{a.top * b.bottom - b.top * a.bottom, a.bottom * b.bottom};
  if (op == '*') return Fraction{a.top * b.top, a.bottom * b.bottom};
  if (b.top == 0) return std::nullopt;
  return Fraction{a.top * b.bottom, a.bottom * b.top};
}

// The parts of "12*3=36": number, operator, number, result; nothing when the text has another form.
std::optional<std::array<long, 4>> step_parts(const std::string& step) {
  const std::size_t op = step.find_first_of("+-*/"), equals = step.find('=');
  if (op == std::string::npos || equals == std::string::npos || equals < op) return std::nullopt;
  const std::array<std::string, 3> words = {step.substr(0, op), step.substr(op + 1, equals - op - 1), step.substr(equals + 1)};
  for (const std::string& word : words) {
    const bool digits = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || word.size() > 9 || (word.size() > 1 && word[0] == '0')) return std::nullopt;
  }
  return std::array<long, 4>{std::stol(words[0]), step[op], std::stol(words[1]), std::stol(words[2])};
}

std::optional<bool> judged_as_steps(const std::array<int, 3>& numbers, int target, const std::string& answer) {
  if (answer.find('=') == std::string::npos) return std::nullopt;
  std::multiset<long> have(numbers.begin(), numbers.end());
  long last = -1;
  for (std::string rest = answer + ","; !rest.empty();) {
    const std::string step = rest.substr(0, rest.find(','));
    rest = rest.substr(step.size() + 1);
    const auto parts = step_parts(step);
    if (!parts) return false;
    const auto [a, op, b, result] = *parts;
    for (const long number : {a, b}) {
      const auto it = have.find(number);
      if (it == have.end()) return false;
      have.erase(it);
    }
    const bool exact = op == '+' ? a + b == result : op == '-' ? a - b == result : op == '*' ? a * b == result : b != 0 && result * b == a;
    if (!exact) return false;
    have.insert(result);
    last = result;
  }
  return have.size() == 1 && last == target;
}

bool judged(const std::array<int, 3>& numbers, int target, const std::string& answer) {
  if (answer.size() > 64) return false;
  if (const auto steps = judged_as_steps(numbers, target, answer)) return *steps;
  std::vector<Fraction> values;
  std::vector<char> operators;
  std::multiset<int> used;
  bool operand_next = true;
  std::size_t depth = 0;
  const auto rank = [](char op) { return op == '*' || op == '/' ? 2 : op == '(' ? 0 : 1; };
  const auto fold = [&] {
    const Fraction b = values.back();
    values.pop_back();
    const auto result = operate(values.back(), operators.back(), b);
    operators.pop_back();
    if (!result) return false;
    values.back() = *result;
    return true;
  };
  for (std::size_t i = 0; i < answer.size();) {
    const char c = answer[i];
    if (c >= '0' && c <= '9') {
      std::size_t end = i;
      while (end < answer.size() && answer[end] >= '0' && answer[end] <= '9') ++end;
      const std::string digits = answer.substr(i, end - i);
      if (!operand_next || digits.size() > 6 || (digits.size() > 1 && digits[0] == '0')) return false;
      used.insert(std::stoi(digits));
      if (used.size() > 3) return false;
      values.push_back({std::stoi(digits), 1});
      operand_next = false;
      i = end;
      continue;
    }
    ++i;
    if (c == '(') {
      if (!operand_next || ++depth > 8) return false;
      operators.push_back(c);
    } else if (c == ')') {
      if (operand_next || depth == 0) return false;
      --depth;
      while (operators.back() != '(') {
        if (!fold()) return false;
      }
      operators.pop_back();
    } else if (c == '+' || c == '-' || c == '*' || c == '/') {
      if (operand_next) return false;
      while (!operators.empty() && rank(operators.back()) >= rank(c)) {
        if (!fold()) return false;
      }
      operators.push_back(c);
      operand_next = true;
    } else {
      return false;
    }
  }
  if (operand_next || depth != 0) return false;
  while (!operators.empty()) {
    if (!fold()) return false;
  }
  return used == std::multiset<int>(numbers.begin(), numbers.end()) && values[0].top == values[0].bottom * target;
}

TEST(CountdownVerifier, AgreesWithASecondOpinionOnMutatedSolutions) {
  const std::string alphabet = "0123456789+-*/()=,. \n";
  std::size_t right = 0, wrong = 0;
  EXPECT_TRUE(rc::check([&] {
    const auto index = *rc::gen::inRange<std::uint64_t>(0, 1'000'000);
    const auto problem = make_countdown_problem(Split::train, 5, index);
    const auto solutions = countdown_solutions(problem.numbers, problem.target);
    const auto& solution = solutions[*rc::gen::inRange<std::size_t>(0, solutions.size())];
    const CountdownFormat format{",", "=", ":", *rc::gen::arbitrary<bool>() ? CountdownAnswer::steps : CountdownAnswer::expression};
    for (int variant = 0; variant < 50; ++variant) {
      std::string answer = countdown_completion(solution, format);
      const int edits = *rc::gen::inRange(0, 4);
      for (int i = 0; i < edits; ++i) {
        const auto at = *rc::gen::inRange<std::size_t>(0, answer.size() + 1);
        const char c = *rc::gen::elementOf(alphabet);
        const int kind = *rc::gen::inRange(0, 4);
        if (kind == 0) answer.insert(at, 1, c);
        if (kind == 1 && at < answer.size()) answer.erase(at, 1);
        if (kind == 2 && at < answer.size()) answer[at] = c;
        if (kind == 3 && at + 1 < answer.size()) std::swap(answer[at], answer[at + 1]);
      }
      const bool expected = judged(problem.numbers, problem.target, answer);
      RC_ASSERT(countdown_correct(problem.numbers, problem.target, answer) == expected);
      ++(expected ? right : wrong);
    }
  }));
  EXPECT_GT(right, 500u);
  EXPECT_GT(wrong, 500u);
}

TEST(CountdownVerifier, AnyBytes) {
  const std::array<int, 3> numbers = {3, 4, 5};
  EXPECT_TRUE(rc::check([&] {
    const auto bytes = *rc::gen::arbitrary<std::string>();
    RC_ASSERT(countdown_correct(numbers, 35, bytes) == judged(numbers, 35, bytes));
    const auto symbols = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("345+-*/()=,")));
    RC_ASSERT(countdown_correct(numbers, 12, symbols) == judged(numbers, 12, symbols));
  }));
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kLongest = 6;  // five million texts are too many at a tenth of the speed
#else
constexpr std::size_t kLongest = 7;
#endif

// Every text of up to so many symbols that could be an answer to one problem, against the second opinion.
TEST(CountdownVerifier, EveryShortText) {
  const std::array<int, 3> numbers = {2, 3, 6};
  const std::string symbols = "236+-*/()";
  std::size_t right = 0;
  for (std::size_t length = 1; length <= kLongest; ++length) {
    std::vector<std::size_t> digits(length, 0);
    for (;;) {
      std::string text;
      for (const std::size_t d : digits) text += symbols[d];
      const bool expected = judged(numbers, 12, text);
      ASSERT_EQ(countdown_correct(numbers, 12, text), expected) << text;
      right += expected;
      std::size_t at = 0;
      while (at < length && ++digits[at] == symbols.size()) digits[at++] = 0;
      if (at == length) break;
    }
  }
  EXPECT_GE(right, 4u);  // 2*3+6 in its four orders
}

}  // namespace
}  // namespace lockstep
