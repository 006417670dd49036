#include "numerics/mxfp4.h"

#include "numerics/element.h"

namespace lockstep {

// S.EE.M with a bias of 1: one mantissa bit; exponent 0 is 0 or 1/2.
float widen_e2m1(std::uint32_t code) {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  return bits_float(float_bits(kMagnitudes[code & 7u]) | (code & 8u) << 28);
}

void decode_mxfp4(const std::uint8_t* blocks, const std::uint8_t* scales, std::int64_t groups, float* values) {
  float numbers[16];
  for (std::uint32_t code = 0; code < 16; ++code) numbers[code] = widen_e2m1(code);
  for (std::int64_t g = 0; g < groups; ++g, blocks += 16, values += kMxfp4Group) {
    // 2^-127 is below the normal numbers; 255 says NaN.
    const std::uint32_t e = scales[g];
    const float scale = bits_float(e == 255 ? 0x7fc00000u : e == 0 ? 0x00400000u : e << 23);
    for (std::int64_t i = 0; i < 16; ++i) {
      values[2 * i] = numbers[blocks[i] & 15u] * scale;
      values[2 * i + 1] = numbers[blocks[i] >> 4] * scale;
    }
  }
}

}  // namespace lockstep
