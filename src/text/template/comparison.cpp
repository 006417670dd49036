#include "text/template/comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/iteration.h"
#include "text/template/numbers.h"
#include "text/template/objects.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return value.boolean();
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::iterator:
    case Kind::name_space:
    case Kind::macro:
    case Kind::function:
    case Kind::cycler:
    case Kind::joiner:
      return true;
    default:
      return *length(value) != 0;
  }
}

bool hashable(const Value& value) {
  if (value.is(Kind::list) || value.is(Kind::dict) || value.is(Kind::dict_view)) return false;
  RenderBudget::step();
  if (value.is(Kind::tuple))
    for (const Value& item : value.items())
      if (!hashable(item)) return false;
  return true;
}

std::size_t hash(const Value& value) {
  RenderBudget::step();
  switch (value.kind()) {
    case Kind::boolean:
    case Kind::integer:
      return static_cast<std::size_t>(value.integer()) * 0x9E3779B97F4A7C15u;
    case Kind::real: {
      const double real = value.real();
      if (std::isfinite(real) && std::fabs(real) < 0x1p120 && real == std::trunc(real)) return hash(Value::of(integer_of(real)));
      return std::hash<double>()(real);
    }
    case Kind::text:
      RenderBudget::search(value.text().bytes().size());
      return std::hash<std::string>()(value.text().bytes());
    case Kind::tuple: {
      std::size_t sum = 0x345678;
      for (const Value& item : value.items()) sum = (sum ^ hash(item)) * 1000003;
      return sum;
    }
    case Kind::none:
      return 7;
    case Kind::undefined:
      return 9;
    case Kind::range:
      return static_cast<std::size_t>(value.as<RangeObject>().size());
    default:
      return std::hash<const void*>()(value.identity());
  }
}

bool same_object(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::none:
      return true;
    case Kind::boolean:
      return a.boolean() == b.boolean();
    case Kind::integer:
      return a.integer() == b.integer() && a.integer() >= -5 && a.integer() <= 256;  // CPython's shared ones
    case Kind::real:
      return false;
    default:
      return a.identity() == b.identity();
  }
}

bool same_or_equal(const Value& a, const Value& b) { return same_object(a, b) || equals(a, b); }

namespace {
bool integer_equals_real(Integer integer, double real) {
  return std::isfinite(real) && std::fabs(real) < 0x1p126 && real == std::trunc(real) && static_cast<Integer>(real) == integer;
}

bool numbers_equal(const Value& a, const Value& b) {
  if (a.is_integral()) return b.is_integral() ? a.integer() == b.integer() : integer_equals_real(a.integer(), b.real());
  return b.is_integral() ? integer_equals_real(b.integer(), a.real()) : a.real() == b.real();
}

bool lists_equal(const List& a, const List& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!same_or_equal(a[i], b[i])) return false;
  return true;
}

bool dicts_equal(const Dict& a, const Dict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* there = b.find(key);
    if (!there || !same_or_equal(*there, value)) return false;
  }
  return true;
}

bool ranges_equal(const RangeObject& a, const RangeObject& b) {
  const auto size = a.size();
  return size == b.size() && (size == 0 || (a.start == b.start && (size == 1 || a.step == b.step)));
}

bool number_less(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  if (a.is(Kind::real) && b.is(Kind::real)) return a.real() < b.real();
  const bool first = a.is(Kind::real);
  const double real = first ? a.real() : b.real();
  if (std::isnan(real)) return false;
  if (std::fabs(real) >= 0x1p126) return first ? real < 0 : real > 0;
  // Exact: the integer against the real's floor, then its fraction.
  const double floor = std::floor(real);
  const auto whole = static_cast<Integer>(floor);
  if (first) return whole < b.integer();
  return a.integer() < whole || (a.integer() == whole && real > floor);
}

bool list_less(const List& a, const List& b, std::string_view op) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (!same_or_equal(a[i], b[i])) return less(a[i], b[i], op);
  return a.size() < b.size();
}
}  // namespace

bool equals(const Value& a, const Value& b) {
  const RenderBudget::Nested nested;
  RenderBudget::step();
  if (a.is_number() && b.is_number()) return numbers_equal(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      RenderBudget::search(a.text().bytes().size());
      return a.text().bytes() == b.text().bytes();
    case Kind::list:
    case Kind::tuple:
      return lists_equal(a.items(), b.items());
    case Kind::dict:
      return dicts_equal(a.dict(), b.dict());
    case Kind::range:
      return ranges_equal(a.as<RangeObject>(), b.as<RangeObject>());
    default:
      return a.identity() == b.identity();
  }
}

bool less(const Value& a, const Value& b, std::string_view op) {
  const RenderBudget::Nested nested;
  RenderBudget::step();
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) return number_less(a, b);
  if (a.is(Kind::text) && b.is(Kind::text)) {
    RenderBudget::search(std::min(a.text().bytes().size(), b.text().bytes().size()));
    return a.text().bytes() < b.text().bytes();
  }
  if (a.is_sequence() && a.kind() == b.kind()) return list_less(a.items(), b.items(), op);
  fail(ErrorCode::invalid_argument, "'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
}

}  // namespace lockstep::jinja
