// The byte-level alphabet of GPT-2: every byte is written as one printable character (space is U+0120, newline U+010A), so that vocabularies of bytes
// can be text in JSON. Thread-safe (constant tables).
//   bytes_to_alphabet(" the") == "\u0120the"; alphabet_to_bytes("\u0120the") == " the";
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// The UTF-8 text of each byte's character.
const std::array<std::string, 256>& byte_alphabet();

std::string bytes_to_alphabet(std::string_view bytes);

// The bytes that `text` (valid UTF-8) stands for; none when a character is outside the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view text);

}  // namespace lockstep
