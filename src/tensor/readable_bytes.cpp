#include "tensor/readable_bytes.h"

#include <cstring>

#include "tensor/device_pointer.h"

namespace lockstep {

bool is_readable(const Device& device) { return device.kind() == BackendKind::cpu; }

const char* readable_bytes(Device& device, const View& view, std::vector<char>& scratch) {
  if (is_readable(device)) return device_pointer<const char>(view);
  const std::int64_t bytes = view.size() * view.element_bytes;
  scratch.resize(static_cast<std::size_t>(bytes));
  if (bytes % 4 == 0) {
    const std::vector<std::int32_t> words = device.stream().read_ints({view.address, DType::i32, 4, 1, bytes / 4, bytes / 4}).get();
    std::memcpy(scratch.data(), words.data(), scratch.size());
  } else {
    const std::vector<std::uint8_t> all = device.stream().read_bytes({view.address, DType::u8, 1, 1, bytes, bytes}).get();
    std::memcpy(scratch.data(), all.data(), scratch.size());
  }
  return scratch.data();
}

}  // namespace lockstep
