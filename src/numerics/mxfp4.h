// MXFP4 as files hold it (OCP MX 1.0, 6.3; gpt-oss): groups of 32 numbers in E2M1, two a byte, the first in the lower half, and one E8M0 scale a
// group, 2^(byte - 127). The numbers are 0, 1/2, 1, 3/2, 2, 3, 4, 6 and the same below 0; a zero keeps its sign.
// The quantiser is that of the format (docs/numerics.md): scale 2^(floor(log2 max|x|) - 2), numbers to nearest even and at most 6. Quantising decoded
// MXFP4 gives the same values, though perhaps with another scale. Pure functions, any thread.
//   decode_mxfp4(blocks, scales, groups, values);
#pragma once
#include <cstdint>

#include "numerics/element.h"

namespace lockstep {

inline constexpr std::int64_t kMxfp4Group = 32;

// The number of a code of four bits, S.EE.M with a bias of 1; exponent 0 is 0 or 1/2.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline float widen_e2m1(std::uint32_t code) {
  const std::uint32_t bits = (code & 8u) << 28 | (code & 7u) << 22;
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x * 0x1p126f;
}
// The code of the E2M1 number nearest to x: ties to even, at most 6 in magnitude. x must not be NaN.
std::uint32_t round_to_e2m1(float x);
// Writes the codes of a group of n <= 32 numbers that lie `step` apart, and returns its scale byte. A group with a NaN or an infinity: codes 0, scale
// 255. A group whose scale would be below 2^-110, of zeros among others: codes 0, scale 127.
std::uint8_t quantise_mxfp4(const float* x, std::int64_t step, std::int64_t n, std::uint8_t* codes);
// `blocks` [groups][16], `scales` [groups] -> `values` [groups][32], exactly; the scale 255 makes NaNs.
void decode_mxfp4(const std::uint8_t* blocks, const std::uint8_t* scales, std::int64_t groups, float* values);
// `groups` groups of numbers that lie `step` apart -> `blocks` [groups][16], `scales` [groups].
void encode_mxfp4(const float* values, std::int64_t step, std::int64_t groups, std::uint8_t* blocks, std::uint8_t* scales);

}  // namespace lockstep
