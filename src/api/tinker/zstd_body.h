// Decompresses zstd bodies while they are read, within a limit, since a few bytes may decompress to any size.
//   ZstdSource source(request.body, 512 << 20); while (!(piece = source.next()).empty()) ...
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "base/byte_source.h"

namespace lockstep {

// One or several frames. RequestErrors of next(): 400 for a body that is no zstd, is cut off or needs a window above 8 MB; 413 beyond `most`
// decompressed bytes.
class ZstdSource : public ByteSource {
 public:
  ZstdSource(std::string_view body, std::size_t most);  // `body` must stay valid
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
