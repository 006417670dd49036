// Numbers of a schema as automata over their JSON text.
//   TextDfa dfa = integer_dfa({.low = 0, .multiple = 5}, work);
// Sizes are bounded, so that text ends and every reader accepts the
// value: an integer has at most kMaxDigits digits; a number without bounds at most kMaxDigits before and kMaxDigits
// after the point, or one digit, a fraction and an exponent from -307 to 307; a number with bounds at most 15 digits in
// all and no exponent, so that two texts of one double are never on two sides of a bound. Knows no schema. Thread-safe
// (pure functions).
#pragma once
#include <nlohmann/json.hpp>

#include <optional>

#include "text/grammar/text_dfa.h"

namespace lockstep {

constexpr int kMaxDigits = 18;

struct IntegerRange {
  std::optional<std::int64_t> low, high;  // included
  std::int64_t multiple = 1;
  bool operator==(const IntegerRange&) const = default;
};

struct NumberBound {
  nlohmann::ordered_json value;  // a number
  bool exclusive = false;
};

// Largest `multiple` that integer_dfa takes.
constexpr std::int64_t kMaxMultiple = 4096;

TextDfa integer_dfa(const IntegerRange& range, SchemaWork& work);
// unsupported where a bound has more than 15 digits.
TextDfa number_dfa(const std::optional<NumberBound>& low, const std::optional<NumberBound>& high, SchemaWork& work);

// -1, 0, 1: as the numbers compare, exactly, whatever their JSON types.
int compare_numbers(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b);
// The least integer >= x (or > x), and the greatest <= x (or < x); none beyond 64 bits.
std::optional<std::int64_t> integer_from(const NumberBound& low);
std::optional<std::int64_t> integer_to(const NumberBound& high);

}  // namespace lockstep
