// Writes JSON directly into a string, for answers that are sent token by token, where building a tree of values would cost more than everything else.
// Pure functions.
//   append_json_string(out, text); append_json_number(out, logprob);
#pragma once
#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace lockstep {

// Quoted and escaped; `text` is valid UTF-8.
void append_json_string(std::string& out, std::string_view text);
// The shortest digits that read back as the same double, so a float comes back with its bits too. NaN and infinities, for which JSON has no
// number, become -9999, as OpenAI writes the log-probability of what cannot be drawn.
void append_json_number(std::string& out, double value);

template <std::integral I>
void append_json_integer(std::string& out, I value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

}  // namespace lockstep
