// Strict percent-decoding of paths and queries: nothing where the text is not %XX of valid UTF-8, or contains NUL. Knows no route. Any thread.
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
