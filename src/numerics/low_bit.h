// Weight-only quantisation: the int4, fp8, mxfp8 and mxfp4 formats, their quantisers, their panels in memory and decoding (docs/numerics.md,
// "Low-bit weights"). Kernels decode a weight where they use it; a product with a low-bit weight has the order and the bits of the product with the decoded
// one. Quantising decoded values again gives the same values. Rows that meet a weight stay floating point, or (kLowBitRows) are rounded to E4M3 in groups.
//   int4    groups of 32 along K, integers of 4 bits and a bf16 scale: the quantiser and the bytes of numerics/quantised.h
//   fp8     E4M3 in blocks of 128 outputs x 128 inputs, one fp32 scale, the least power of two with max |w| <= 448 scale
//   mxfp8   E4M3 in groups of 32 along K, one E8M0 scale, 2^(floor(log2 max |w|) - 8); larger than 448 scale becomes that (OCP MX v1.0, 6.3)
//   mxfp8_both  two mxfp8 copies of a weight: in groups of 32 along K for the forward, and in groups of 32 along N for the input gradient
//   mxfp4   E2M1 in groups of 32 along K, one E8M0 scale, 2^(floor(log2 max |w|) - 2): numerics/mxfp4.h
// E4M3 and E2M1 are rounded to nearest even and keep the sign of a zero. A scale below 2^-110 makes zeros. A NaN or an infinity makes every value that
// shares its scale NaN. Knows no kernel and no model. Pure functions, any thread.
//   encode_panels(image, {.outputs = 1536, .inputs = 576, .format = LowBitFormat::fp8}, bytes, 0, shape.panels());
#pragma once
#include <cstdint>

#include "numerics/e4m3.h"
#include "numerics/mxfp4.h"
#include "numerics/quantised.h"

namespace lockstep {

// Values of PackedWeight::bits and Profile::weight_bits; there, 8 and 4 are integer weights whose activations are quantised too (numerics/quantised.h).
enum class LowBitFormat : int { none = 0, int4 = 16, fp8 = 17, mxfp8 = 18, mxfp4 = 19, mxfp8_both = 20 };
inline constexpr int kLowBitExperts = 64;   // flag beside the format in Profile::weight_bits: routed experts only
inline constexpr int kLowBitTrained = 128;  // the same: all weights train; linear layers and experts are quantised again after each step
// The same, and beside the format in PackedWeight::bits: rows that meet the weight in a forward or an input gradient are rounded to E4M3 first, in groups
// along the sum that share a power of two by the format's rule.
inline constexpr int kLowBitRows = 256;
inline constexpr int kLowBitVersion = 1;  // of the formats and their quantisers, in a profile's digest
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline bool is_low_bit_format(int bits) { return bits >= static_cast<int>(LowBitFormat::int4); }
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline LowBitFormat low_bit_format_of(int bits) {
  return is_low_bit_format(bits) ? static_cast<LowBitFormat>(bits & ~(kLowBitExperts | kLowBitTrained | kLowBitRows)) : LowBitFormat::none;
}
const char* low_bit_format_name(LowBitFormat format);  // int4, fp8, mxfp8 (of both), mxfp4

inline constexpr std::int64_t kFp8Block = 128;  // of fp8, outputs and inputs
// Numbers of a row that share a scale (kLowBitRows), counted from the row's first; the last group may be shorter.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline std::int64_t row_group(LowBitFormat format) {
  return format == LowBitFormat::fp8 ? kFp8Block : kQuantisedGroup;
}
// The scale of a group of weights or of a row's numbers, from the bits of its largest magnitude.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline GroupScale low_bit_scale(std::uint32_t largest, LowBitFormat format) {
  return e4m3_scale(largest, format != LowBitFormat::fp8);
}

// Layout of one weight [outputs, inputs]: independent panels of 16 outputs, each its scales, padded, then its values.
//   int4 as QuantisedShape; fp8: fp32 scales [inputs / 128], E4M3 [inputs][16]; mxfp8: E8M0 scales [inputs / 32][16], E4M3 [inputs][16];
//   mxfp4: these scales, and groups of codes where int4 has its integers
//   mxfp8_both: as mxfp8, then E8M0 scales [inputs], padded to 16, of the 32 outputs that this panel and its neighbour hold, and E4M3 [inputs][16] under those
struct LowBitShape {
  std::int64_t outputs = 0, inputs = 0;
  LowBitFormat format = LowBitFormat::fp8;
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] QuantisedShape integers() const { return {outputs, inputs, 4}; }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t panels() const { return (outputs + 15) / 16; }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t scale_bytes() const {
    if (format == LowBitFormat::int4) return integers().scale_bytes();
    if (format == LowBitFormat::mxfp4) return (integers().groups() * 16 + 63) / 64 * 64;
    if (groups_of_inputs()) return (inputs + kQuantisedGroup - 1) / kQuantisedGroup * 16;
    return ((inputs + kFp8Block - 1) / kFp8Block * 4 + 15) / 16 * 16;
  }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t panel_bytes() const {
    if (format == LowBitFormat::mxfp4) return scale_bytes() + integers().groups() * integers().group_bytes();
    if (format == LowBitFormat::mxfp8_both) return across_begin() + across_scale_bytes() + inputs * 16;
    return format == LowBitFormat::int4 ? integers().panel_bytes() : scale_bytes() + inputs * 16;
  }
  // mxfp8 or mxfp8_both: E4M3 whose scales are of groups of inputs.
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] bool groups_of_inputs() const { return format == LowBitFormat::mxfp8 || format == LowBitFormat::mxfp8_both; }
  // Of mxfp8_both: where the scales of groups of outputs begin in a panel, and their bytes.
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t across_begin() const { return scale_bytes() + inputs * 16; }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t across_scale_bytes() const { return (inputs + 15) / 16 * 16; }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t bytes() const { return panels() * panel_bytes(); }
};

// Element (lane, k) of a panel.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline float low_bit_element(const std::uint8_t* panel, const LowBitShape& shape, std::int64_t lane,
                                                                        std::int64_t k) {
  const std::uint8_t* values = panel + shape.scale_bytes();
  std::uint32_t scale = 0;
  float scale_value;
  if (shape.format == LowBitFormat::int4) {
    __builtin_memcpy(&scale, panel + (k / kQuantisedGroup * 16 + lane) * 2, 2);
    scale <<= 16;
    __builtin_memcpy(&scale_value, &scale, 4);
    return static_cast<float>(quantised_integer(values, 4, lane, k)) * scale_value;
  }
  if (shape.groups_of_inputs() || shape.format == LowBitFormat::mxfp4)
    scale = static_cast<std::uint32_t>(panel[k / kQuantisedGroup * 16 + lane]) << 23;  // 255: an infinity, whose numbers are zeros: NaN
  else __builtin_memcpy(&scale, panel + k / kFp8Block * 4, 4);
  __builtin_memcpy(&scale_value, &scale, 4);
  if (shape.format == LowBitFormat::mxfp4) return widen_e2m1(static_cast<std::uint32_t>(quantised_integer(values, 4, lane, k) + 8)) * scale_value;
  return widen_e4m3(values[k * 16 + lane]) * scale_value;
}

// The same element as the input gradient reads it, rounded in groups of outputs; mxfp8_both alone.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline float low_bit_element_across(const std::uint8_t* panel, const LowBitShape& shape, std::int64_t lane,
                                                                               std::int64_t k) {
  const std::uint8_t* scales = panel + shape.across_begin();
  const std::uint32_t scale = static_cast<std::uint32_t>(scales[k]) << 23;
  float scale_value;
  __builtin_memcpy(&scale_value, &scale, 4);
  return widen_e4m3(scales[shape.across_scale_bytes() + k * 16 + lane]) * scale_value;
}

// Rounds the `n` numbers of a row as kLowBitRows asks before a product with a weight of this format: to E4M3 times the scale of their group. y may be
// x.
void round_row(const float* x, std::int64_t n, LowBitFormat format, float* y);

// Converts panels [panel_begin, panel_end) from an fp32 image [N/16][K][16] (kernels/linear/linear.h), and back; panel_begin is a multiple of 8.
void encode_panels(const float* image, const LowBitShape& shape, std::uint8_t* bytes, std::int64_t panel_begin, std::int64_t panel_end);
void decode_panels(const std::uint8_t* bytes, const LowBitShape& shape, float* image);
// The same for the copy that the input gradient reads; mxfp8_both only.
void decode_panels_across(const std::uint8_t* bytes, const LowBitShape& shape, float* image);

}  // namespace lockstep
