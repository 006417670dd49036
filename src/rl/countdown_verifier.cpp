#include "rl/countdown_verifier.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

namespace lockstep {
namespace {
constexpr int kLargestGiven = 1'000'000;
constexpr std::size_t kMostGiven = 16;

// A reduced fraction with a positive denominator; every operation gives nothing on overflow.
struct Rational {
  std::int64_t numerator = 0, denominator = 1;
};
using Value = std::optional<Rational>;

Value reduced(std::int64_t numerator, std::int64_t denominator) {
  if (denominator == 0 || numerator == INT64_MIN || denominator == INT64_MIN) return std::nullopt;
  if (denominator < 0) numerator = -numerator, denominator = -denominator;
  const std::int64_t divisor = std::gcd(numerator, denominator);
  return Rational{numerator / divisor, denominator / divisor};
}

Value product(const Rational& a, const Rational& b) {
  std::int64_t numerator = 0, denominator = 0;
  if (__builtin_mul_overflow(a.numerator, b.numerator, &numerator)) return std::nullopt;
  if (__builtin_mul_overflow(a.denominator, b.denominator, &denominator)) return std::nullopt;
  return reduced(numerator, denominator);
}

Value sum(const Rational& a, const Rational& b) {
  std::int64_t left = 0, right = 0, numerator = 0, denominator = 0;
  if (__builtin_mul_overflow(a.numerator, b.denominator, &left)) return std::nullopt;
  if (__builtin_mul_overflow(b.numerator, a.denominator, &right)) return std::nullopt;
  if (__builtin_add_overflow(left, right, &numerator)) return std::nullopt;
  if (__builtin_mul_overflow(a.denominator, b.denominator, &denominator)) return std::nullopt;
  return reduced(numerator, denominator);
}

Value compute(const Value& a, char operation, const Value& b) {
  if (!a || !b) return std::nullopt;
  switch (operation) {
    case '+':
      return sum(*a, *b);
    case '-':
      return sum(*a, {-b->numerator, b->denominator});
    case '*':
      return product(*a, *b);
    default:
      if (b->numerator == 0) return std::nullopt;
      return product(*a, {b->numerator < 0 ? -b->denominator : b->denominator, b->numerator < 0 ? -b->numerator : b->numerator});
  }
}

bool is_operation(char c) { return c == '+' || c == '-' || c == '*' || c == '/'; }

// The text, and the numbers that may still be used.
class Reader {
 public:
  Reader(std::span<const int> numbers, std::string_view text) : left_(numbers.begin(), numbers.end()), text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  char take() { return text_[at_++]; }
  bool take_if(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // A plain decimal whole number: no sign, no leading zero, at most 7 digits.
  std::optional<int> literal() {
    const std::size_t start = at_;
    int value = 0;
    while (!at_end() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (at_ - start == 7) return std::nullopt;
      value = value * 10 + (take() - '0');
    }
    const std::size_t digits = at_ - start;
    if (digits == 0 || (digits > 1 && text_[start] == '0')) return std::nullopt;
    return value;
  }

  // A literal that is one of the remaining numbers, which it consumes.
  Value number() {
    const auto value = literal();
    if (!value) return std::nullopt;
    const auto it = std::find(left_.begin(), left_.end(), *value);
    if (it == left_.end()) return std::nullopt;
    left_.erase(it);
    return Rational{*value, 1};
  }

  void give(int value) { left_.push_back(value); }
  const std::vector<int>& left() const { return left_; }

 private:
  std::vector<int> left_;
  std::string_view text_;
  std::size_t at_ = 0;
};

Value expression(Reader& reader, int depth);

Value factor(Reader& reader, int depth) {
  if (!reader.take_if('(')) return reader.number();
  if (depth == kCountdownMaxDepth) return std::nullopt;
  const Value inner = expression(reader, depth + 1);
  if (!inner || !reader.take_if(')')) return std::nullopt;
  return inner;
}

Value term(Reader& reader, int depth) {
  Value value = factor(reader, depth);
  while (value && (reader.peek() == '*' || reader.peek() == '/')) {
    const char operation = reader.take();
    value = compute(value, operation, factor(reader, depth));
  }
  return value;
}

Value expression(Reader& reader, int depth) {
  Value value = term(reader, depth);
  while (value && (reader.peek() == '+' || reader.peek() == '-')) {
    const char operation = reader.take();
    value = compute(value, operation, term(reader, depth));
  }
  return value;
}

bool expression_correct(Reader reader, int target) {
  const Value value = expression(reader, 0);
  return value && reader.at_end() && reader.left().empty() && value->denominator == 1 && value->numerator == target;
}

bool steps_correct(Reader reader, int target) {
  for (;;) {
    const Value left = reader.number();
    if (!left || !is_operation(reader.peek())) return false;
    const char operation = reader.take();
    const Value exact = compute(left, operation, reader.number());
    if (!exact || !reader.take_if('=')) return false;
    const auto written = reader.literal();
    if (!written || exact->denominator != 1 || exact->numerator != *written) return false;
    reader.give(*written);
    if (reader.at_end()) return reader.left().size() == 1 && *written == target;
    if (!reader.take_if(',')) return false;
  }
}
}  // namespace

bool countdown_correct(std::span<const int> numbers, int target, std::string_view answer) {
  if (answer.empty() || answer.size() > kCountdownMaxAnswerBytes) return false;
  if (numbers.empty() || numbers.size() > kMostGiven || target < 0 || target > kLargestGiven) return false;
  for (const int number : numbers) {
    if (number < 0 || number > kLargestGiven) return false;
  }
  const Reader reader(numbers, answer);
  return answer.find('=') == std::string_view::npos ? expression_correct(reader, target) : steps_correct(reader, target);
}

}  // namespace lockstep
