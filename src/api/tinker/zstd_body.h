// Decompresses zstd bodies while they are read, within a limit, since the sender chooses what a few bytes grow to.
//   ZstdSource source(request.body, 512 << 20); while (!(piece = source.next()).empty()) ...
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "base/byte_source.h"

namespace lockstep {

// One or several frames. Errors (RequestError), when it comes to that: 400 for what is no zstd, is cut off or wants a window above 8 MB;
// 413 beyond `most` bytes.
class ZstdSource : public ByteSource {
 public:
  ZstdSource(std::string_view body, std::size_t most);  // the body stays where it is
  ~ZstdSource() override;
  std::string_view next() override;

 private:
  struct Decoder;
  std::unique_ptr<Decoder> decoder_;
  const std::string_view body_;
  const std::size_t most_;
  std::string chunk_;
  std::size_t position_ = 0, total_ = 0, left_ = 1;  // left: 0 at the end of a frame
};

}  // namespace lockstep
