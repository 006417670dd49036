#include "numerics/quantised.h"

#include <algorithm>

namespace lockstep {

float quantise_group(const float* x, std::int64_t step, std::int64_t n, int bits, std::int8_t* q) {
  std::uint32_t largest = 0;  // the largest magnitude as bits; those of infinity and NaN are above every finite number's
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, float_bits(x[i * step]) & 0x7fffffffu);
  for (std::int64_t i = 0; i < n; ++i) q[i] = 0;
  if (largest >= 0x7f800000u) return bits_float(0x7fc00000u);
  const float scale = widen(round_to_bf16(bits_float(largest) / (bits == 8 ? 127.0f : 7.0f)));
  if (scale < kLeastScale) return 0.0f;
  const float inverse = 1.0f / scale;
  for (std::int64_t i = 0; i < n; ++i) q[i] = static_cast<std::int8_t>(__builtin_nearbyintf(x[i * step] * inverse));
  return scale;
}

void quantise_panels(const float* image, const QuantisedShape& shape, std::uint8_t* bytes, std::int64_t panel_begin, std::int64_t panel_end) {
  const int zero = shape.bits == 8 ? 128 : 8;
  for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const float* from = image + panel * shape.inputs * 16;
    std::uint8_t* scales = bytes + panel * shape.panel_bytes();
    std::uint8_t* groups = scales + shape.scale_bytes();
    std::memset(scales, 0, static_cast<std::size_t>(shape.panel_bytes()));
    for (std::int64_t g = 0; g < shape.groups(); ++g) {
      const std::int64_t begin = g * kQuantisedGroup, n = std::min(kQuantisedGroup, shape.inputs - begin);
      std::uint8_t* to = groups + g * shape.group_bytes();
      for (std::int64_t lane = 0; lane < 16; ++lane) {
        std::int8_t q[kQuantisedGroup] = {};
        const Bf16 scale = round_to_bf16(quantise_group(from + begin * 16 + lane, 16, n, shape.bits, q));
        std::memcpy(scales + (g * 16 + lane) * 2, &scale, 2);
        for (std::int64_t k = 0; k < kQuantisedGroup; ++k) {
          const int stored = q[k] + zero;
          std::uint8_t& byte = to[shape.bits == 8 ? k / 4 * 64 + lane * 4 + k % 4 : k / 8 * 64 + lane * 4 + k % 4];
          byte = static_cast<std::uint8_t>(shape.bits == 8 ? stored : byte | stored << (k % 8 / 4 * 4));
        }
      }
    }
  }
}

void dequantise_panels(const std::uint8_t* bytes, const QuantisedShape& shape, float* image) {
  for (std::int64_t panel = 0; panel < shape.panels(); ++panel) {
    const std::uint8_t* scales = bytes + panel * shape.panel_bytes();
    for (std::int64_t k = 0; k < shape.inputs; ++k)
      for (std::int64_t lane = 0; lane < 16; ++lane) {
        Bf16 scale;
        std::memcpy(&scale, scales + (k / kQuantisedGroup * 16 + lane) * 2, 2);
        image[(panel * shape.inputs + k) * 16 + lane] = static_cast<float>(quantised_integer(scales + shape.scale_bytes(), shape.bits, lane, k)) * widen(scale);
      }
  }
}

}  // namespace lockstep
