// Numbers of the template language as text and from text, as Python's int and float.
//   if (const auto parsed = parse_integer("0x1f", 0)) value = Value::of(*parsed);
// Any thread.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "text/template/value.h"

namespace lockstep::jinja {

std::string integer_text(Integer value);
std::string real_text(double value);                                    // Python's repr(float)
std::optional<Integer> parse_integer(std::string_view text, int base);  // Python's int(text, base)
std::optional<double> parse_real(std::string_view text);                // Python's float(text)
Integer integer_of(double value);                                       // truncated; invalid_argument for NaN, infinity, too large
[[noreturn]] void fail_integer_range();

}  // namespace lockstep::jinja
