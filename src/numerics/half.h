// IEEE half precision (fp16) as files hold it. Pure functions.
//   widen_half(0x3c00) == 1.0f;
#pragma once
#include <cstdint>

#include "numerics/element.h"

namespace lockstep {

// The same value in fp32, exactly; a NaN keeps its bits.
inline float widen_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u, mantissa = half & 0x3ffu;
  if (exponent == 31) return bits_float(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return bits_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // exact
  return bits_float(sign | float_bits(magnitude));
}

}  // namespace lockstep
