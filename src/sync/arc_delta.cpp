#include "sync/arc_delta.h"

#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"

namespace lockstep {

std::string apply_arc(std::string_view payload, std::string_view base, const std::string& checksum) {
  constexpr std::string_view kZstd = "\x28\xb5\x2f\xfd";
  std::string bytes(base.size(), '\0');
  bool whole = false;
  if (payload.starts_with(kZstd)) {
    whole = ZSTD_decompress(bytes.data(), bytes.size(), payload.data(), payload.size()) == bytes.size();
  } else if (payload.size() >= 2 && (static_cast<std::uint8_t>(payload[0]) & 0x0f) == 8 &&
             (static_cast<std::uint8_t>(payload[0]) * 256 + static_cast<std::uint8_t>(payload[1])) % 31 == 0) {
    uLongf length = bytes.size();
    uLong used = payload.size();
    char none = 0;  // zlib wants a place for no bytes too
    whole =
        uncompress2(reinterpret_cast<Bytef*>(bytes.empty() ? &none : bytes.data()), &length, reinterpret_cast<const Bytef*>(payload.data()), &used) == Z_OK &&
        length == bytes.size() && used == payload.size();
  } else {
    fail(ErrorCode::unsupported,
         "the delta is neither zlib's (arc_v1) nor zstd's (arc_v2); arc_v3 is refused, since it carries Python pickles, which run code");
  }
  if (!whole) fail(ErrorCode::corrupt_file, "the delta does not decompress to the {} bytes that the base has", base.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(bytes[i] ^ base[i]);
  const std::string found = fmt::format("{}", adler32_z(1, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  if (found != checksum)
    fail(ErrorCode::corrupt_file, "the result has the Adler-32 {}, expected {}; the base is another, or the delta is damaged", found, checksum.substr(0, 20));
  return bytes;
}

}  // namespace lockstep
