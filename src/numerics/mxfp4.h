// MXFP4 as files hold it (OCP MX 1.0, 6.3; gpt-oss): groups of 32 numbers in E2M1, two a byte, the first in the lower half, and one E8M0 scale a
// group, 2^(byte - 127). The numbers are 0, 1/2, 1, 3/2, 2, 3, 4, 6 and the same below 0; a zero keeps its sign.
// Pure functions, any thread.
//   decode_mxfp4(blocks, scales, groups, values);
#pragma once
#include <cstdint>

namespace lockstep {

inline constexpr std::int64_t kMxfp4Group = 32;

// The number of a code of four bits.
float widen_e2m1(std::uint32_t code);
// `blocks` [groups][16], `scales` [groups] -> `values` [groups][32], exactly; the scale 255 makes NaNs.
void decode_mxfp4(const std::uint8_t* blocks, const std::uint8_t* scales, std::int64_t groups, float* values);

}  // namespace lockstep
