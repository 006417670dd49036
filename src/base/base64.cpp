#include "base/base64.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace lockstep {

namespace {
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view kUrlLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

using Values = std::array<std::int8_t, 256>;  // the value of each byte; -1: not in the alphabet
constexpr Values values_of(std::string_view letters) {
  Values values{};
  values.fill(-1);
  for (std::size_t i = 0; i < letters.size(); ++i) values[static_cast<unsigned char>(letters[i])] = static_cast<std::int8_t>(i);
  return values;
}
constexpr Values kValues = values_of(kLetters), kUrlValues = values_of(kUrlLetters);
}  // namespace

std::string to_base64(std::string_view bytes, Base64 form) {
  const std::string_view letters = form == Base64::url ? kUrlLetters : kLetters;
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t own = std::min<std::size_t>(bytes.size() - i, 3);
    std::uint32_t word = 0;
    for (std::size_t b = 0; b < 3; ++b) word = word << 8 | (b < own ? static_cast<unsigned char>(bytes[i + b]) : 0u);
    for (std::size_t c = 0; c <= own; ++c) text += letters[word >> (18 - 6 * c) & 63];
    if (form == Base64::standard) text.append(3 - own, '=');
  }
  return text;
}

DecodedBase64 from_base64(std::string_view text, Base64 form) {
  const Values& values = form == Base64::url ? kUrlValues : kValues;
  if (form == Base64::standard) {
    if (text.size() % 4) return {"", fmt::format("has {} characters, allowed is base64, padded to a multiple of 4", text.size())};
    for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  } else if (text.size() % 4 == 1) {
    return {"", fmt::format("has {} characters, of which the last stands for no byte", text.size())};
  }
  DecodedBase64 decoded;
  decoded.bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t word = 0;
  int bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::int8_t value = values[static_cast<unsigned char>(text[i])];
    if (value < 0) return {"", fmt::format("has the byte {:#04x} at {}, which base64 has not", static_cast<unsigned char>(text[i]), i)};
    word = word << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits >= 8) decoded.bytes += static_cast<char>(word >> (bits -= 8) & 255);
  }
  if (word & ((1u << bits) - 1)) return {"", "ends in bits that no byte has; allowed is base64 whose last bits are 0"};
  return decoded;
}

}  // namespace lockstep
