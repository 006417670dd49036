// Any bytes as a manifest, a channel's record, a record of ways or a tensor's payload: an Error, or what has one text and values of the tensor's size;
// never a crash.
// sources: src/sync/manifest.cpp src/sync/channel.cpp src/sync/snapshot_ways.cpp src/sync/tensor_codec.cpp src/sync/sparse_codec.cpp
// sources: src/sync/planes_codec.cpp src/sync/class_scan.cpp src/numerics/isa/word_classes.cpp src/checkpoint/safetensors_header.cpp
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"
#include "sync/channel.h"
#include "sync/manifest.h"
#include "sync/snapshot_ways.h"
#include "sync/tensor_codec.h"

namespace {
using namespace lockstep;

void any_manifest(std::string_view text) {
  if (manifest_text(read_manifest(text)) != text) __builtin_trap();
}
void any_channel(std::string_view text) {
  if (channel_text(parse_channel(text)) != text) __builtin_trap();
}
void any_ways(std::string_view text) {
  if (ways_text(parse_ways(text)) != text) __builtin_trap();
}
// Type, codec and size come from the first bytes, then a byte from which the old tensor is made.
void any_payload(std::string_view bytes) {
  if (bytes.size() < 5) return;
  const auto type = static_cast<SafetensorsType>(static_cast<std::uint8_t>(bytes[0]) % (static_cast<int>(SafetensorsType::u64) + 1));
  const auto codec = static_cast<TensorCodec>(static_cast<std::uint8_t>(bytes[1]) % 5);
  const std::size_t elements = (static_cast<std::uint8_t>(bytes[2]) | static_cast<std::uint8_t>(bytes[3]) << 8) % 10000;
  std::string old_bytes(elements * static_cast<std::size_t>(safetensors_type_bytes(type)), '\0'), to(old_bytes.size(), '\0');
  std::uint32_t state = static_cast<std::uint8_t>(bytes[4]) + 1u;
  for (char& c : old_bytes) c = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  decode_tensor(codec, type, bytes.substr(5), old_bytes, to);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 4 == 0) any_manifest(rest);
    else if (data[0] % 4 == 1) any_channel(rest);
    else if (data[0] % 4 == 3) any_ways(rest);
    else any_payload(rest);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt_file && e.code() != ErrorCode::unsupported) __builtin_trap();
  }
  return 0;
}
