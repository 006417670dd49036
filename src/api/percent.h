// Percent-decoding of paths and queries, strict: what is not %XX of UTF-8, or holds a NUL, is nothing. Knows no route.
// Any thread.
//   const auto name = percent_decode("gpt%2F2");  // "gpt/2"
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space = false);
// UTF-8 as Unicode defines it: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace lockstep
