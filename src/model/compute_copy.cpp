#include "model/compute_copy.h"

#include <algorithm>
#include <cstring>

#include "model/low_bit_weights.h"
#include "numerics/int4_words.h"

namespace lockstep {

namespace {
std::int64_t panels_of(std::int64_t rows) { return (rows + 15) / 16; }

// Encodes panels [panels of rows][inputs][16] as the profile has this parameter.
std::vector<std::uint8_t> quantised(const Parameter& p, const Profile& profile, std::int64_t rows, const std::vector<float>& panels) {
  const int bits = weight_bits(p, profile);
  if (is_low_bit_format(bits)) {
    const LowBitShape shape{rows, p.inputs, low_bit_format_of(bits)};
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(shape.bytes()));
    encode_panels(panels.data(), shape, bytes.data(), 0, shape.panels());
    return bytes;
  }
  const QuantisedShape shape{rows, p.inputs, bits};
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(shape.bytes()));
  quantise_panels(panels.data(), shape, bytes.data(), 0, shape.panels());
  return bytes;
}

ConvertedPart converted(const Parameter& p, const Profile& profile, ConvertedPart part) {
  if (compute_dtype(p, profile) != DType::u8) return part;
  part.bytes = quantised(p, profile, part.rows, part.numbers);
  std::vector<float>().swap(part.numbers);  // = {} would keep its memory
  return part;
}
}  // namespace

std::int64_t computed_bytes(const Parameter& p, const Profile& profile) {
  if (weight_bits(p, profile) != 0) return p.count * item_bytes(p, profile);
  return p.size() * element_size(compute_dtype(p, profile), false);
}
std::int64_t computed_bytes(const Manifest& manifest, const Profile& profile) {
  std::int64_t bytes = 0;
  for (const Parameter& p : manifest.parameters()) bytes += computed_bytes(p, profile);
  return bytes;
}

Buffer allocate_compute_copy(Backend& backend, const Parameter& p, const Profile& profile) {
  const DType dtype = compute_dtype(p, profile);
  if (dtype != DType::u8) return allocate_parameter(backend, p, dtype, MemoryCategory::weights);
  return backend.device().allocate(DType::u8, p.count, item_bytes(p, profile), MemoryCategory::weights);
}

ConvertedPart convert_rows(const Parameter& p, const Profile& profile, std::int64_t item, std::int64_t row, std::int64_t rows, const float* values) {
  ConvertedPart part{.item = item, .row = row, .rows = rows};
  if (p.layout == ParameterLayout::table) {
    part.numbers.assign(values, values + rows * p.inputs);
    return part;
  }
  part.numbers.assign(static_cast<std::size_t>(panels_of(rows) * p.inputs * 16), 0.0f);
  for (std::int64_t n = 0; n < rows; ++n) {
    float* to = part.numbers.data() + n / 16 * p.inputs * 16 + n % 16;
    for (std::int64_t k = 0; k < p.inputs; ++k) to[k * 16] = values[n * p.inputs + k];
  }
  return converted(p, profile, std::move(part));
}

ConvertedPart convert_transposed(const Parameter& p, const Profile& profile, std::int64_t item, std::int64_t at_once,
                                 const std::function<void(std::int64_t input, std::int64_t count, float* values)>& read) {
  ConvertedPart part{.item = item, .row = 0, .rows = p.outputs};
  part.numbers.assign(static_cast<std::size_t>(p.item_size()), 0.0f);
  std::vector<float> some(static_cast<std::size_t>(std::min(at_once, p.inputs) * p.outputs));
  for (std::int64_t first = 0; first < p.inputs; first += at_once) {
    const std::int64_t count = std::min(at_once, p.inputs - first);
    read(first, count, some.data());
    for (std::int64_t k = 0; k < count; ++k)
      for (std::int64_t n = 0; n < p.outputs; ++n)
        part.numbers[static_cast<std::size_t>(p.offset(0, n, first + k))] = some[static_cast<std::size_t>(k * p.outputs + n)];
  }
  std::vector<float>().swap(some);
  return converted(p, profile, std::move(part));
}

ConvertedPart convert_int4(const Parameter& p, const Profile& profile, std::int64_t item, std::int64_t row, std::int64_t rows, const std::uint32_t* words,
                           const Bf16* scales) {
  ConvertedPart part{.item = item, .row = row, .rows = rows};
  const QuantisedShape shape{rows, p.inputs, 4};
  part.bytes.resize(static_cast<std::size_t>(LowBitShape{rows, p.inputs, low_bit_format_of(weight_bits(p, profile))}.bytes()));
  words_to_panels(words, scales, shape, part.bytes.data());
  return part;
}

ConvertedPart convert_fp8(const Parameter& p, const Profile& profile, std::int64_t item, std::int64_t row, std::int64_t rows, const std::uint8_t* codes,
                          const float* scales) {
  ConvertedPart part{.item = item, .row = row, .rows = rows};
  const LowBitShape shape{rows, p.inputs, low_bit_format_of(weight_bits(p, profile))};
  const std::int64_t across = (p.inputs + kFp8Block - 1) / kFp8Block;
  part.bytes.resize(static_cast<std::size_t>(shape.bytes()));
  for (std::int64_t first = 0; first < rows; first += 16) {
    std::uint8_t *panel = part.bytes.data() + first / 16 * shape.panel_bytes(), *values = panel + shape.scale_bytes();
    std::memcpy(panel, scales + first / kFp8Block * across, static_cast<std::size_t>(across) * sizeof(float));
    for (std::int64_t lane = 0; lane < std::min<std::int64_t>(16, rows - first); ++lane)
      for (std::int64_t k = 0; k < p.inputs; ++k) values[k * 16 + lane] = codes[(first + lane) * p.inputs + k];
  }
  return part;
}

ConvertedPart convert_mxfp8(const Parameter& p, const Profile& profile, std::int64_t item, std::int64_t row, std::int64_t rows, const std::uint8_t* codes,
                            const std::uint8_t* exponents) {
  ConvertedPart part{.item = item, .row = row, .rows = rows};
  const LowBitShape shape{rows, p.inputs, low_bit_format_of(weight_bits(p, profile))};
  const std::int64_t groups = (p.inputs + kQuantisedGroup - 1) / kQuantisedGroup;
  part.bytes.resize(static_cast<std::size_t>(shape.bytes()));
  for (std::int64_t n = 0; n < rows; ++n) {
    std::uint8_t *scales = part.bytes.data() + n / 16 * shape.panel_bytes() + n % 16, *values = scales + shape.scale_bytes();
    for (std::int64_t g = 0; g < groups; ++g) scales[g * 16] = exponents[n * groups + g];
    for (std::int64_t k = 0; k < p.inputs; ++k) values[k * 16] = codes[n * p.inputs + k];
  }
  return part;
}

void write_part(Backend& backend, const Parameter& p, const Profile& profile, const Buffer& copy, const ConvertedPart& part) {
  const View& whole = copy.view();
  if (p.layout == ParameterLayout::table) {
    backend.stream().write(whole.row_range(part.item * p.outputs + part.row, part.rows), part.numbers);
  } else if (whole.dtype != DType::u8) {
    backend.stream().write(whole.column_range(part.item * p.item_size() + part.row * p.inputs, static_cast<std::int64_t>(part.numbers.size())), part.numbers);
  } else {
    const std::int64_t panel = item_bytes(p, profile) / panels_of(p.outputs);
    backend.stream().write(whole.block(part.item, 1, part.row / 16 * panel, static_cast<std::int64_t>(part.bytes.size())), part.bytes);
  }
}

}  // namespace lockstep
