#include "text/tokenizer/byte_alphabet.h"

#include "text/utf8.h"

namespace lockstep {
namespace {
constexpr std::uint32_t kPastAlphabet = 324;  // 256 + the 68 bytes without a printable Latin-1 character

// Printable bytes stand for themselves; the others follow from U+0100 in ascending order.
std::uint32_t character_of(unsigned byte) {
  static const std::array<std::uint32_t, 256> table = [] {
    std::array<std::uint32_t, 256> t{};
    std::uint32_t next = 256;
    for (unsigned b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      t[b] = printable ? b : next++;
    }
    return t;
  }();
  return table[byte];
}
}  // namespace

const std::array<std::string, 256>& byte_alphabet() {
  static const std::array<std::string, 256> table = [] {
    std::array<std::string, 256> t;
    for (unsigned b = 0; b < 256; ++b) utf8_append(t[b], character_of(b));
    return t;
  }();
  return table;
}

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) text += byte_alphabet()[static_cast<unsigned char>(c)];
  return text;
}

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
  static const std::array<std::int16_t, kPastAlphabet> table = [] {
    std::array<std::int16_t, kPastAlphabet> t;
    t.fill(-1);
    for (unsigned b = 0; b < 256; ++b) t[character_of(b)] = static_cast<std::int16_t>(b);
    return t;
  }();
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Unit unit = utf8_front(text);
    if (unit.kind != Utf8Unit::Kind::character || unit.codepoint >= kPastAlphabet) return std::nullopt;
    if (table[unit.codepoint] < 0) return std::nullopt;
    bytes += static_cast<char>(table[unit.codepoint]);
    text.remove_prefix(unit.bytes);
  }
  return bytes;
}

}  // namespace lockstep
