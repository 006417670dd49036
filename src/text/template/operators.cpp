#include <cmath>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/builtins.h"
#include "text/template/comparison.h"
#include "text/template/iteration.h"
#include "text/template/numbers.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {
namespace {
[[noreturn]] void bad_operands(std::string_view op, const Value& left, const Value& right) {
  fail(ErrorCode::invalid_argument, "unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(left), type_name(right));
}

Integer add(Integer a, Integer b) {
  Integer result;
  if (__builtin_add_overflow(a, b, &result)) fail_integer_range();
  return result;
}
Integer subtract(Integer a, Integer b) {
  Integer result;
  if (__builtin_sub_overflow(a, b, &result)) fail_integer_range();
  return result;
}
Integer multiply(Integer a, Integer b) {
  Integer result;
  if (__builtin_mul_overflow(a, b, &result)) fail_integer_range();
  return result;
}

[[noreturn]] void by_zero() { fail(ErrorCode::invalid_argument, "division by zero"); }

Integer integer_power(Integer base, Integer exponent) {
  Integer result = 1;
  while (exponent > 0) {
    RenderBudget::step();
    if (exponent & 1) result = multiply(result, base);
    exponent >>= 1;
    if (exponent > 0) base = multiply(base, base);
  }
  return result;
}

Value real_power(double base, double exponent) {
  if (base == 0 && exponent < 0) fail(ErrorCode::invalid_argument, "0.0 cannot be raised to a negative power");
  const double result = std::pow(base, exponent);
  if (std::isnan(result) && !std::isnan(base) && !std::isnan(exponent)) fail(ErrorCode::unsupported, "complex numbers are not offered in chat templates");
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent)) fail(ErrorCode::invalid_argument, "(34, 'Numerical result out of range')");
  return Value::of(result);
}

Value integer_operation(std::string_view op, Integer a, Integer b) {
  if (op == "+") return Value::of(add(a, b));
  if (op == "-") return Value::of(subtract(a, b));
  if (op == "*") return Value::of(multiply(a, b));
  if (op == "**") {
    if (b >= 0) {
      if (a == 0 || a == 1) return Value::of(b == 0 ? Integer{1} : a);
      if (a == -1) return Value::of(b & 1 ? Integer{-1} : Integer{1});
      if (b > 127) fail_integer_range();
      return Value::of(integer_power(a, b));
    }
    if (a == 0) fail(ErrorCode::invalid_argument, "0.0 cannot be raised to a negative power");
    return real_power(static_cast<double>(a), static_cast<double>(b));
  }
  if (b == 0) by_zero();
  if (op == "/") return Value::of(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {
    if (op == "%") return Value::of(Integer{0});
    return Value::of(subtract(0, a));
  }
  Integer quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    --quotient;
  }
  return Value::of(op == "//" ? quotient : rest);
}

Value real_operation(std::string_view op, double a, double b) {
  if (op == "+") return Value::of(a + b);
  if (op == "-") return Value::of(a - b);
  if (op == "*") return Value::of(a * b);
  if (op == "**") return real_power(a, b);
  if (b == 0) by_zero();
  if (op == "/") return Value::of(a / b);
  // As CPython: the remainder has the sign of the divisor, the quotient is exact where it can be.
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (op == "%") return Value::of(rest);
  if (quotient == 0) return Value::of(std::copysign(0.0, a / b));
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1;
  return Value::of(floor);
}

std::size_t repeats(Integer count, std::size_t unit_bytes) {
  if (count <= 0 || unit_bytes == 0) return 0;
  // More than any budget: charged first, so that nothing is made.
  if (count > (Integer{1} << 40)) RenderBudget::bytes(SIZE_MAX / 2);
  const auto n = static_cast<std::size_t>(count);
  RenderBudget::bytes(n * unit_bytes);
  return n;
}

Value repeat(const Value& sequence, Integer count) {
  if (sequence.is(Kind::text)) {
    const Text& text = sequence.text();
    const std::size_t n = repeats(count, text.bytes().size());
    TextBuilder out;
    out.reserve(n * text.bytes().size());
    for (std::size_t i = 0; i < n; ++i) out.append(text);
    Text result = out.take();
    result.set_markup(text.markup());
    return Value::of(std::move(result));
  }
  const std::size_t n = repeats(count, sequence.items().size() * sizeof(Value));
  List items;
  items.reserve(n * sequence.items().size());
  for (std::size_t i = 0; i < n; ++i) items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  return make_list(std::move(items), sequence.kind());
}

Value add(const Value& left, const Value& right) {
  if (left.is(Kind::text) && right.is(Kind::text)) {
    const bool markup = left.text().markup() || right.text().markup();
    TextBuilder out;
    out.append(markup ? html_escape(left.text()) : left.text());
    out.append(markup ? html_escape(right.text()) : right.text());
    Text result = out.take();
    result.set_markup(markup);
    return Value::of(std::move(result));
  }
  if (left.is_sequence() && left.kind() == right.kind()) {
    RenderBudget::bytes((left.items().size() + right.items().size()) * sizeof(Value));
    List items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    return make_list(std::move(items), left.kind());
  }
  bad_operands("+", left, right);
}
}  // namespace

Value binary_operation(Interpreter& interpreter, std::string_view op, const Value& left, const Value& right) {
  if (op == "%" && left.is(Kind::text)) return Value::of(percent_format(interpreter, left.text(), right));
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  if (left.is_number() && right.is_number()) {
    const bool foreign = left.foreign() || right.foreign();
    if (left.is_integral() && right.is_integral()) return integer_operation(op, left.integer(), right.integer()).marked(foreign);
    return real_operation(op, left.real(), right.real()).marked(foreign);
  }
  if (op == "+") return add(left, right);
  if (op == "*") {
    const auto repeatable = [](const Value& v) { return v.is(Kind::text) || v.is_sequence(); };
    if (repeatable(left) && right.is_integral()) return repeat(left, right.integer());
    if (repeatable(right) && left.is_integral()) return repeat(right, left.integer());
  }
  bad_operands(op, left, right);
}

bool compare_operation(std::string_view op, const Value& left, const Value& right) {
  if (op == "==") return equals(left, right);
  if (op == "!=") return !equals(left, right);
  if (op == "in") return contains(right, left);
  if (op == "not in") return !contains(right, left);
  if (op == "<") return less(left, right, op);
  if (op == ">") return less(right, left, op);
  const auto is_nan = [](const Value& v) { return v.is(Kind::real) && std::isnan(v.real()); };
  if (left.is_number() && right.is_number() && (is_nan(left) || is_nan(right))) return false;
  return op == "<=" ? !less(right, left, op) : !less(left, right, op);
}

}  // namespace lockstep::jinja
