// UTF-8 handling: finds whole and broken characters, and replaces broken bytes by U+FFFD, one
// per maximal subpart (Unicode 15, section 3.9), as Rust's from_utf8_lossy and so Hugging Face tokenizers do.
//   std::string clean = utf8_lossy(bytes);
// Knows no character classes but white space. Thread-safe (pure functions).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct Utf8Unit {
  enum class Kind { character, broken, incomplete };
  Kind kind;
  std::size_t bytes;        // >= 1: of the character, of the maximal broken subpart, or of all that is left
  std::uint32_t codepoint;  // of a character
};

// The unit at the front of `bytes` (not empty). incomplete: a prefix of a character that more bytes could still finish.
Utf8Unit utf8_front(std::string_view bytes);

// `bytes` with every broken or unfinished part replaced by U+FFFD.
std::string utf8_lossy(std::string_view bytes);
// At most 60 bytes of `text`, made printable in one line, for error messages.
std::string utf8_excerpt(std::string_view text);
bool utf8_valid(std::string_view bytes);
void utf8_append(std::string& text, std::uint32_t codepoint);

// The property White_Space.
bool is_white_space(std::uint32_t codepoint);

}  // namespace lockstep
