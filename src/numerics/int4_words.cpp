#include "numerics/int4_words.h"

#include <algorithm>
#include <cstring>

namespace lockstep {

namespace {
constexpr std::uint32_t kZeros = 0x88888888u;  // eight times q = 0

// Four nibbles, one to the lower half of each byte; and back.
std::uint32_t spread(std::uint32_t x) {
  x = (x | x << 8) & 0x00ff00ffu;
  return (x | x << 4) & 0x0f0f0f0fu;
}
std::uint32_t gather(std::uint32_t x) {
  x = (x | x >> 4) & 0x00ff00ffu;
  return (x | x >> 8) & 0xffffu;
}

// The bits of a row's word that hold numbers.
std::uint32_t used_bits(std::int64_t inputs, std::int64_t word) {
  const std::int64_t left = inputs - word * 8;
  return left >= 8 ? ~std::uint32_t{0} : (std::uint32_t{1} << (4 * left)) - 1;
}
}  // namespace

// Eight inputs of an output are four bytes of a panel: the first quad in their lower halves, the second in the upper ones.
void words_to_panels(const std::uint32_t* words, const Bf16* scales, const QuantisedShape& shape, std::uint8_t* bytes) {
  const std::int64_t row_words = int4_words(shape.inputs), groups = shape.groups();
  for (std::int64_t panel = 0; panel < shape.panels(); ++panel) {
    std::uint8_t *panel_scales = bytes + panel * shape.panel_bytes(), *to = panel_scales + shape.scale_bytes();
    std::memset(panel_scales, 0, static_cast<std::size_t>(shape.scale_bytes()));
    std::memset(to, static_cast<int>(kZeros & 0xffu), static_cast<std::size_t>(groups * shape.group_bytes()));
    for (std::int64_t lane = 0; lane < std::min<std::int64_t>(16, shape.outputs - panel * 16); ++lane) {
      const std::uint32_t* row = words + (panel * 16 + lane) * row_words;
      for (std::int64_t i = 0; i < row_words; ++i) {
        const std::uint32_t used = used_bits(shape.inputs, i), word = (row[i] & used) | (kZeros & ~used);
        const std::uint32_t quads = spread(word & 0xffffu) | spread(word >> 16) << 4;
        std::memcpy(to + i * 64 + lane * 4, &quads, 4);
      }
      for (std::int64_t g = 0; g < groups; ++g) std::memcpy(panel_scales + (g * 16 + lane) * 2, scales + (panel * 16 + lane) * groups + g, 2);
    }
  }
}

void panels_to_words(const std::uint8_t* bytes, const QuantisedShape& shape, std::uint32_t* words, Bf16* scales) {
  const std::int64_t row_words = int4_words(shape.inputs), groups = shape.groups();
  for (std::int64_t n = 0; n < shape.outputs; ++n) {
    const std::uint8_t *panel_scales = bytes + n / 16 * shape.panel_bytes(), *from = panel_scales + shape.scale_bytes();
    for (std::int64_t i = 0; i < row_words; ++i) {
      std::uint32_t quads;
      std::memcpy(&quads, from + i * 64 + n % 16 * 4, 4);
      words[n * row_words + i] = (gather(quads & 0x0f0f0f0fu) | gather(quads >> 4 & 0x0f0f0f0fu) << 16) & used_bits(shape.inputs, i);
    }
    for (std::int64_t g = 0; g < groups; ++g) std::memcpy(scales + n * groups + g, panel_scales + (g * 16 + n % 16) * 2, 2);
  }
}

}  // namespace lockstep
