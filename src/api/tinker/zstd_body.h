// Bodies that came compressed by zstd, within bounds: what a few bytes grow to is the sender's choice. Pure function.
//   const std::string body = decompressed(request.body, 512 << 20);
#pragma once
#include <cstddef>
#include <string>

namespace lockstep {

// One or several frames. Errors (RequestError): 400 for what is no zstd, is cut off or wants a window above 128 MB; 413 beyond `most` bytes.
std::string decompressed(const std::string& body, std::size_t most);

}  // namespace lockstep
