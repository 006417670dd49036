// Any bytes as a delta of arc_v1 or arc_v2: an Error, or as many bytes as the base has, with the checksum that was asked for; never a crash.
// sources: src/sync/arc_delta.cpp
#include <cstdint>
#include <string>

#include "base/error.h"
#include "sync/arc_delta.h"

// The base's size, a byte that fills it, the checksum as four bytes, and the delta.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  if (size < 7) return 0;
  const std::string base(static_cast<std::size_t>(data[0] | data[1] << 8), static_cast<char>(data[2]));
  const std::uint32_t checksum = data[3] | data[4] << 8 | data[5] << 16 | static_cast<std::uint32_t>(data[6]) << 24;
  try {
    if (apply_arc({reinterpret_cast<const char*>(data) + 7, size - 7}, base, std::to_string(checksum)).size() != base.size()) __builtin_trap();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt_file && e.code() != ErrorCode::unsupported) __builtin_trap();
  }
  return 0;
}
