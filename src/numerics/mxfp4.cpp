#include "numerics/mxfp4.h"

#include <algorithm>

namespace lockstep {

std::uint32_t round_to_e2m1(float x) {
  const std::uint32_t u = float_bits(x) & 0x7fffffffu, sign = float_bits(x) >> 28 & 8u;
  const float magnitude = bits_float(u);
  if (magnitude >= 6.0f) return sign | 7u;
  if (magnitude < 1.0f) return sign | static_cast<std::uint32_t>(__builtin_nearbyintf(magnitude * 2.0f));
  return sign | (((u + 0x1fffffu + (u >> 22 & 1u)) >> 22) - (126u << 1));
}

std::uint8_t quantise_mxfp4(const float* x, std::int64_t step, std::int64_t n, std::uint8_t* codes) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, float_bits(x[i * step]) & 0x7fffffffu);
  const bool bad = largest >= 0x7f800000u;
  const int e = static_cast<int>(largest >> 23) - 127 - 2;
  if (bad || e < -110) {
    std::fill_n(codes, n, std::uint8_t{0});
    return bad ? 255 : 127;
  }
  const float inverse = bits_float(static_cast<std::uint32_t>(127 - e) << 23);
  for (std::int64_t i = 0; i < n; ++i) codes[i] = static_cast<std::uint8_t>(round_to_e2m1(x[i * step] * inverse));
  return static_cast<std::uint8_t>(e + 127);
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

void encode_mxfp4(const float* values, std::int64_t step, std::int64_t groups, std::uint8_t* blocks, std::uint8_t* scales) {
  std::uint8_t codes[kMxfp4Group];
  for (std::int64_t g = 0; g < groups; ++g, blocks += 16, values += kMxfp4Group * step) {
    scales[g] = quantise_mxfp4(values, step, kMxfp4Group, codes);
    for (std::int64_t i = 0; i < 16; ++i) blocks[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

}  // namespace lockstep
