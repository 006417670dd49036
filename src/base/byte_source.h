// A stream of bytes in pieces, for readers that need not have the whole text in memory.
//   TextSource source(body); while (!(piece = source.next()).empty()) ...
#pragma once
#include <algorithm>
#include <string_view>

namespace lockstep {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // The next piece, valid until the next call; empty at the end.
  virtual std::string_view next() = 0;
};

// Reads a text in memory, which must outlive this.
class TextSource : public ByteSource {
 public:
  explicit TextSource(std::string_view text) : rest_(text) {}
  std::string_view next() override {
    constexpr std::size_t kPiece = 64 << 10;  // small enough that readers check for cancellation often
    const std::string_view piece = rest_.substr(0, kPiece);
    rest_.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::string_view rest_;
};

}  // namespace lockstep
