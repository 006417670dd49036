// Integer quantisation of weights and activations: the one quantiser, its panels in memory, and dequantising (docs/numerics.md section 2).
//   A group is 32 neighbours along K (the last may be shorter: zeros). limit is 127 (8 bits) or 7 (4 bits).
//     scale = bf16(max |w| / limit), rounded to nearest even;  q = round(w * (1 / scale)), ties to even;  w ~ q * scale
//   A scale below 2^-110 makes the group zero (scale +0). A group with a NaN or an infinity has scale NaN and q = 0, so that
//   whatever uses it is a NaN. No q exceeds the limit; quantising what was dequantised gives the same q and scale.
//   Kernels quantise the rows of x in the same way, always to 8 bits, with the scale kept in fp32 (kernels/linear/quantised.h).
// Knows no kernel and no model. Pure functions, any thread.
//   const QuantisedShape shape{.outputs = 1536, .inputs = 576, .bits = 8}; quantise_panels(image, shape, bytes, 0, shape.panels());
#pragma once
#include <cstdint>

#include "numerics/element.h"

namespace lockstep {

inline constexpr std::int64_t kQuantisedGroup = 32;
inline constexpr float kLeastScale = 0x1p-110f;

// Layout of the integers of one weight [outputs, inputs]: panels of 16 outputs, each its scales [groups][16] in bf16, padded to 64
// bytes, then its groups. 8 bits: [8 quads of inputs][16 outputs][4 inputs], a byte q + 128. 4 bits: [4 pairs of quads][16
// outputs][4 inputs], a byte with q + 8 of the earlier quad in its lower half and of the later one in its upper half.
struct QuantisedShape {
  std::int64_t outputs = 0, inputs = 0;
  int bits = 8;
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t panels() const { return (outputs + 15) / 16; }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t groups() const { return (inputs + kQuantisedGroup - 1) / kQuantisedGroup; }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t scale_bytes() const { return (groups() * 32 + 63) / 64 * 64; }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t group_bytes() const { return kQuantisedGroup * 16 * bits / 8; }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t panel_bytes() const { return scale_bytes() + groups() * group_bytes(); }
  LOCKSTEP_EVERYWHERE [[gnu::always_inline]] std::int64_t bytes() const { return panels() * panel_bytes(); }
};

// Leaves of a sum over k integer inputs: the largest power of two <= maximum that cuts them into leaves of whole groups.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline int quantised_leaf_count(std::int64_t k, int maximum = 8) {
  for (int g = maximum; g > 1; g /= 2)
    if (k % (g * kQuantisedGroup) == 0) return g;
  return 1;
}

// The integer of element (lane, k) of a panel's groups (what follows its scales).
template <class Byte>
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline int quantised_integer(const Byte* groups, int bits, std::int64_t lane, std::int64_t k) {
  if (bits == 8) return static_cast<int>(groups[k / 4 * 64 + lane * 4 + k % 4]) - 128;
  return static_cast<int>(groups[k / 8 * 64 + lane * 4 + k % 4] >> (k % 8 / 4 * 4) & 15) - 8;
}

// Computes q and scale of a group of n <= 32 numbers that lie `step` apart.
float quantise_group(const float* x, std::int64_t step, std::int64_t n, int bits, std::int8_t* q);
// Converts panels [panel_begin, panel_end) from an fp32 image [N/16][K][16] (kernels/linear/linear.h), and back.
void quantise_panels(const float* image, const QuantisedShape& shape, std::uint8_t* bytes, std::int64_t panel_begin, std::int64_t panel_end);
void dequantise_panels(const std::uint8_t* bytes, const QuantisedShape& shape, float* image);

}  // namespace lockstep
