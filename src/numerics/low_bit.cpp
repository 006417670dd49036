#include "numerics/low_bit.h"

#include <algorithm>

namespace lockstep {

namespace {
// The bits of the largest magnitude; those of infinity and NaN are above every finite number's.
std::uint32_t largest_magnitude(const float* x, std::int64_t step, std::int64_t n, std::int64_t width) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < width; ++j) largest = std::max(largest, float_bits(x[i * step + j]) & 0x7fffffffu);
  return largest;
}

void encode_e4m3(const float* x, std::uint8_t* to, std::int64_t n, std::int64_t width, float inverse) {
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < width; ++j) to[i * 16 + j] = round_to_e4m3(x[i * 16 + j] * inverse);
}

void encode_fp8_blocks(const float* image, const LowBitShape& shape, std::uint8_t* bytes, std::int64_t panel_begin, std::int64_t panel_end) {
  constexpr std::int64_t kPanels = kFp8Block / 16;
  const std::int64_t panel_size = shape.inputs * 16;
  for (std::int64_t first = panel_begin; first < panel_end; first += kPanels) {
    // A block's scale covers all of its panels, including those that this call does not write.
    const std::int64_t block_end = std::min(shape.panels(), first + kPanels), end = std::min(panel_end, block_end);
    for (std::int64_t block = 0; block * kFp8Block < shape.inputs; ++block) {
      const std::int64_t k = block * kFp8Block, n = std::min(kFp8Block, shape.inputs - k);
      std::uint32_t largest = 0;
      for (std::int64_t panel = first; panel < block_end; ++panel)
        largest = std::max(largest, largest_magnitude(image + panel * panel_size + k * 16, 16, n, 16));
      const GroupScale group = low_bit_scale(largest, shape.format);
      for (std::int64_t panel = first; panel < end; ++panel) {
        std::uint8_t* to = bytes + panel * shape.panel_bytes();
        std::memcpy(to + block * 4, &group.scale, 4);
        if (group.scale > 0) encode_e4m3(image + panel * panel_size + k * 16, to + shape.scale_bytes() + k * 16, n, 16, group.inverse);
      }
    }
  }
}

// A scale's byte: its exponent; 0 where the group is zeros, 255 where it is NaN.
std::uint8_t e8m0(const GroupScale& group) { return group.scale == group.scale ? static_cast<std::uint8_t>(float_bits(group.scale) >> 23) : 255; }

void encode_groups(const float* image, const LowBitShape& shape, std::uint8_t* bytes, std::int64_t panel_begin, std::int64_t panel_end) {
  for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const float* from = image + panel * shape.inputs * 16;
    std::uint8_t *scales = bytes + panel * shape.panel_bytes(), *values = scales + shape.scale_bytes();
    for (std::int64_t k = 0; k < shape.inputs; k += kQuantisedGroup, scales += 16) {
      const std::int64_t n = std::min(kQuantisedGroup, shape.inputs - k);
      for (std::int64_t lane = 0; lane < 16; ++lane) {
        const std::uint32_t largest = largest_magnitude(from + k * 16 + lane, 16, n, 1);
        const GroupScale group = low_bit_scale(largest, shape.format);
        scales[lane] = e8m0(group);
        if (group.scale > 0) encode_e4m3(from + k * 16 + lane, values + k * 16 + lane, n, 1, group.inverse);
      }
    }
  }
}

// Groups of outputs: a pair of panels shares the scales of its inputs, and each panel has a copy of them.
void encode_groups_of_outputs(const float* image, const LowBitShape& shape, std::uint8_t* bytes, std::int64_t panel_begin, std::int64_t panel_end) {
  constexpr std::int64_t kPanels = kQuantisedGroup / 16;
  const std::int64_t panel_size = shape.inputs * 16;
  for (std::int64_t first = panel_begin; first < panel_end; first += kPanels) {
    const std::int64_t group_end = std::min(shape.panels(), first + kPanels), end = std::min(panel_end, group_end);
    for (std::int64_t k = 0; k < shape.inputs; ++k) {
      std::uint32_t largest = 0;
      for (std::int64_t panel = first; panel < group_end; ++panel)
        largest = std::max(largest, largest_magnitude(image + panel * panel_size + k * 16, 16, 1, 16));
      const GroupScale group = low_bit_scale(largest, shape.format);
      for (std::int64_t panel = first; panel < end; ++panel) {
        std::uint8_t* to = bytes + panel * shape.panel_bytes() + shape.across_begin();
        to[k] = e8m0(group);
        if (group.scale > 0) encode_e4m3(image + panel * panel_size + k * 16, to + shape.across_scale_bytes() + k * 16, 1, 16, group.inverse);
      }
    }
  }
}

void encode_mxfp4_groups(const float* image, const LowBitShape& shape, std::uint8_t* bytes, std::int64_t panel_begin, std::int64_t panel_end) {
  std::uint8_t codes[kMxfp4Group];
  for (std::int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const float* from = image + panel * shape.inputs * 16;
    std::uint8_t *scales = bytes + panel * shape.panel_bytes(), *values = scales + shape.scale_bytes();
    for (std::int64_t k = 0; k < shape.inputs; k += kMxfp4Group, scales += 16) {
      const std::int64_t n = std::min(kMxfp4Group, shape.inputs - k);
      for (std::int64_t lane = 0; lane < 16; ++lane) {
        scales[lane] = quantise_mxfp4(from + k * 16 + lane, 16, n, codes);
        for (std::int64_t i = 0; i < n; ++i)  // where quantised_integer finds it
          values[(k + i) / 8 * 64 + lane * 4 + i % 4] |= static_cast<std::uint8_t>(codes[i] << (i % 8 / 4 * 4));
      }
    }
  }
}
}  // namespace

const char* low_bit_format_name(LowBitFormat format) {
  switch (format) {
    case LowBitFormat::int4:
      return "int4";
    case LowBitFormat::fp8:
      return "fp8";
    case LowBitFormat::mxfp8:
    case LowBitFormat::mxfp8_both:
      return "mxfp8";
    case LowBitFormat::mxfp4:
      return "mxfp4";
    case LowBitFormat::none:
      break;
  }
  return "none";
}

void round_row(const float* x, std::int64_t n, LowBitFormat format, float* y) {
  for (std::int64_t begin = 0; begin < n; begin += row_group(format)) {
    const std::int64_t end = std::min(n, begin + row_group(format));
    const GroupScale group = low_bit_scale(largest_magnitude(x + begin, 1, end - begin, 1), format);
    for (std::int64_t i = begin; i < end; ++i) y[i] = e4m3_of_group(x[i], group);
  }
}

void encode_panels(const float* image, const LowBitShape& shape, std::uint8_t* bytes, std::int64_t panel_begin, std::int64_t panel_end) {
  if (panel_begin == panel_end) return;  // of an empty part, whose bytes may be null
  if (shape.format == LowBitFormat::int4) return quantise_panels(image, shape.integers(), bytes, panel_begin, panel_end);
  std::memset(bytes + panel_begin * shape.panel_bytes(), 0, static_cast<std::size_t>((panel_end - panel_begin) * shape.panel_bytes()));
  if (shape.format == LowBitFormat::fp8) encode_fp8_blocks(image, shape, bytes, panel_begin, panel_end);
  else if (shape.format == LowBitFormat::mxfp4) encode_mxfp4_groups(image, shape, bytes, panel_begin, panel_end);
  else encode_groups(image, shape, bytes, panel_begin, panel_end);
  if (shape.format == LowBitFormat::mxfp8_both) encode_groups_of_outputs(image, shape, bytes, panel_begin, panel_end);
}

void decode_panels(const std::uint8_t* bytes, const LowBitShape& shape, float* image) {
  for (std::int64_t panel = 0; panel < shape.panels(); ++panel)
    for (std::int64_t k = 0; k < shape.inputs; ++k)
      for (std::int64_t lane = 0; lane < 16; ++lane)
        image[(panel * shape.inputs + k) * 16 + lane] = low_bit_element(bytes + panel * shape.panel_bytes(), shape, lane, k);
}

void decode_panels_across(const std::uint8_t* bytes, const LowBitShape& shape, float* image) {
  for (std::int64_t panel = 0; panel < shape.panels(); ++panel)
    for (std::int64_t k = 0; k < shape.inputs; ++k)
      for (std::int64_t lane = 0; lane < 16; ++lane)
        image[(panel * shape.inputs + k) * 16 + lane] = low_bit_element_across(bytes + panel * shape.panel_bytes(), shape, lane, k);
}

}  // namespace lockstep
