// 64-bit integers in as few bytes as they need (LEB128): 7 bits a byte, the lowest first; the highest bit of a byte means that another follows.
//   put_varint(text, 300);   VarintReader in(text); in.next() == 300
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace lockstep {

inline void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

class VarintReader {
 public:
  explicit VarintReader(std::string_view bytes) : rest_(bytes) {}
  // Error corrupt_file of both functions: the bytes end early; of next() also: a number has more than 64 bits or a redundant byte.
  std::uint64_t next() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      if (shift == 63 ? byte > 1 : shift > 0 && byte == 0) fail(ErrorCode::corrupt_file, "a number is longer than it needs to be");
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string_view take(std::uint64_t bytes) {
    if (bytes > rest_.size()) fail(ErrorCode::corrupt_file, "{} bytes are to follow, and {} do", bytes, rest_.size());
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return taken;
  }
  std::size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

}  // namespace lockstep
