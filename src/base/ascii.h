// Lower-casing and trimming of ASCII text, independent of the locale. Bytes outside ASCII are unchanged. Pure functions.
//   if (ascii_lower(header) == "content-type") ...
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

inline std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

// `spaces`: the characters that go.
inline std::string_view trimmed(std::string_view text, std::string_view spaces = " \t\n\v\f\r") {
  const std::size_t first = text.find_first_not_of(spaces);
  return first == std::string_view::npos ? std::string_view() : text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

}  // namespace lockstep
