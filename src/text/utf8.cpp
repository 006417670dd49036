#include "text/utf8.h"

namespace lockstep {

Utf8Unit utf8_front(std::string_view bytes) {
  using Kind = Utf8Unit::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return {Kind::character, 1, first};
  if (first < 0xC2 || first > 0xF4) return {Kind::broken, 1, 0};
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  std::uint32_t codepoint = first & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::incomplete, i, 0};
    // The second byte's range excludes overlong forms, surrogates and what lies above U+10FFFF.
    unsigned low = 0x80, high = 0xBF;
    if (i == 1) {
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {Kind::broken, i, 0};
    codepoint = codepoint << 6 | (byte(i) & 0x3F);
  }
  return {Kind::character, length, codepoint};
}

std::string utf8_lossy(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Unit unit = utf8_front(bytes);
    if (unit.kind == Utf8Unit::Kind::character) {
      text.append(bytes.substr(0, unit.bytes));
    } else {
      text += "\xEF\xBF\xBD";
    }
    bytes.remove_prefix(unit.bytes);
  }
  return text;
}

bool utf8_valid(std::string_view bytes) {
  while (!bytes.empty()) {
    const Utf8Unit unit = utf8_front(bytes);
    if (unit.kind != Utf8Unit::Kind::character) return false;
    bytes.remove_prefix(unit.bytes);
  }
  return true;
}

std::string utf8_excerpt(std::string_view text) {
  std::string excerpt = utf8_lossy(text.substr(0, 60));
  for (char& c : excerpt) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return text.size() > 60 ? excerpt + "..." : excerpt;
}

void utf8_append(std::string& text, std::uint32_t codepoint) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((codepoint >> shift) & 0x3F)); };
  if (codepoint < 0x80) {
    text += static_cast<char>(codepoint);
  } else if (codepoint < 0x800) {
    text += static_cast<char>(0xC0 | codepoint >> 6);
    tail(0);
  } else if (codepoint < 0x10000) {
    text += static_cast<char>(0xE0 | codepoint >> 12);
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0 | codepoint >> 18);
    tail(12), tail(6), tail(0);
  }
}

bool is_white_space(std::uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace lockstep
