// Bytes that come in pieces, for readers that need not have them all at once.
//   TextSource source(body); while (!(piece = source.next()).empty()) ...
#pragma once
#include <algorithm>
#include <string_view>

namespace lockstep {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // The next piece, which stays until the next call; empty: there is no more.
  virtual std::string_view next() = 0;
};

// Of a text in memory, which stays while this lives.
class TextSource : public ByteSource {
 public:
  explicit TextSource(std::string_view text) : rest_(text) {}
  std::string_view next() override {
    constexpr std::size_t kPiece = 64 << 10;  // so that readers look up now and then
    const std::string_view piece = rest_.substr(0, kPiece);
    rest_.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::string_view rest_;
};

}  // namespace lockstep
