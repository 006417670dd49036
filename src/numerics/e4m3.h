// The 8-bit floating-point format E4M3 (S.EEEE.MMM, bias 7, subnormals, no infinity, at most 448), and its use in groups of numbers that share a
// power of two as scale: for weights (numerics/low_bit.h) and for rows that are multiplied by them (docs/numerics.md, "Linear layers that train in 8
// bits"), which share this code. Knows no kernel. Pure functions, any thread.
//   const GroupScale scale = e4m3_scale(largest_magnitude_bits, true); y = e4m3_of_group(x, scale);
#pragma once
#include "numerics/element.h"

namespace lockstep {

inline constexpr float kLargestE4m3 = 448.0f;

// The number nearest to x, ties to even, a magnitude of at most 448; a zero keeps its sign. Not of a NaN.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline float nearest_e4m3(float x) {
  const std::uint32_t u = float_bits(x) & 0x7fffffffu, sign = float_bits(x) & 0x80000000u;
  const float magnitude = bits_float(u);
  float nearest = bits_float((u + 0x7ffffu + (u >> 20 & 1u)) & 0xfff00000u);  // three bits behind the point
  nearest = nearest < kLargestE4m3 ? nearest : kLargestE4m3;
  // Below the normal numbers, multiples of 2^-9: what the last bit of 2^14 counts.
  const float small = (magnitude + 0x1p14f) - 0x1p14f;
  return bits_float(float_bits(magnitude < 0x1p-6f ? small : nearest) | sign);
}
// The code of `number`, which must be exactly an E4M3 number or a NaN (0x7f, or 0xff with its sign).
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline std::uint8_t e4m3_code(float number) {
  const std::uint32_t u = float_bits(number) & 0x7fffffffu, sign = float_bits(number) >> 24 & 0x80u;
  if (u > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (u < 0x3c800000u) return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(bits_float(u) * 0x1p9f));
  return static_cast<std::uint8_t>(sign | ((u >> 20) - (120u << 3)));
}
// The code of the E4M3 number nearest to x; a NaN's is a NaN code.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline std::uint8_t round_to_e4m3(float x) {
  return e4m3_code((float_bits(x) & 0x7fffffffu) > 0x7f800000u ? x : nearest_e4m3(x));
}
// Defined for every code that a quantiser writes (all but the NaN codes 0x7f and 0xff).
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline float widen_e4m3(std::uint32_t code) {
  const std::uint32_t bits = (code & 0x80u) << 24 | (code & 0x7fu) << 20;
  float x;
  __builtin_memcpy(&x, &bits, 4);
  return x * 0x1p120f;
}

// What a group shares: `scale` 2^e and `inverse` 2^-e; both 0: the group is zeros; both NaN: it has a NaN or an infinity.
struct GroupScale {
  float scale, inverse;
};
// The scale of a group, from the bits of its largest magnitude (those of infinity and NaN are above every finite number's).
//   saturating: 2^(floor(log2 max) - 8), under which numbers above 448 * scale become 448 * scale (OCP MX 1.0, 6.3)
//   otherwise:  the least power of two with max <= 448 * scale
// A scale below 2^-110 is replaced by 0: the group becomes zeros.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline GroupScale e4m3_scale(std::uint32_t largest, bool saturating) {
  if (largest >= 0x7f800000u) return {bits_float(0x7fc00000u), bits_float(0x7fc00000u)};
  int exponent = static_cast<int>(largest >> 23) - 127 - 8;
  if (!saturating && (largest & 0x7fffffu) > 0x600000u) ++exponent;  // above 1.75
  if (largest < 0x00800000u || exponent < -110) return {0.0f, 0.0f};
  return {bits_float(static_cast<std::uint32_t>(exponent + 127) << 23), bits_float(static_cast<std::uint32_t>(127 - exponent) << 23)};
}
// x rounded to an E4M3 number times its group's scale. Rounded once: multiplying by a power of two is exact.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline float e4m3_of_group(float x, const GroupScale& group) {
  if (!(group.scale > 0.0f)) return group.scale;  // +0, or NaN
  return nearest_e4m3(x * group.inverse) * group.scale;
}

}  // namespace lockstep
