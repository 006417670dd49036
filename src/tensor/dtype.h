// Element types of device buffers. On the traced backend f32 and bf16 elements are {value, hash}, so sizes depend on the backend.
//   dtype_name(DType::bf16) == "bf16"; element_size(DType::bf16, false) == 2;
#pragma once
#include <cstdint>
#include <string_view>

namespace lockstep {

enum class DType : std::uint8_t {
  f32,
  bf16,
  i32,
  u8,
  bins,  // order-free accumulators, one element a number (kernels lay out 16 lanes together)
};

inline std::string_view dtype_name(DType t) {
  constexpr std::string_view names[] = {"f32", "bf16", "i32", "u8", "bins"};
  return names[static_cast<int>(t)];
}

// Bytes of one element; `traced` for the traced backend.
inline std::int64_t element_size(DType t, bool traced) {
  switch (t) {
    case DType::f32:
      return traced ? 16 : 4;
    case DType::bf16:
      return traced ? 16 : 2;
    case DType::i32:
      return 4;
    case DType::u8:
      return 1;
    case DType::bins:
      return traced ? 32 : 24;
  }
  return 0;
}

}  // namespace lockstep
