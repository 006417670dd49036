// Any bytes as a safetensors file: an Error or a file whose every tensor can be read; never a crash.
// sources: src/checkpoint/safetensors.cpp src/checkpoint/safetensors_header.cpp
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep;
  try {
    const SafetensorsFile file = SafetensorsFile::from_bytes(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    for (const SafetensorsTensor& tensor : file.tensors()) {
      if (file.find(tensor.name) != &tensor) __builtin_trap();
      if (tensor.type == SafetensorsType::f32 || tensor.type == SafetensorsType::bf16 || tensor.type == SafetensorsType::f16) {
        if (file.read(tensor).size() != static_cast<std::size_t>(tensor.elements())) __builtin_trap();
      } else if (tensor.type == SafetensorsType::i32 || tensor.type == SafetensorsType::i64) {
        if (file.read_integers(tensor).size() != static_cast<std::size_t>(tensor.elements())) __builtin_trap();
      }
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::corrupt_file && e.code() != ErrorCode::unsupported) __builtin_trap();
  }
  return 0;
}
