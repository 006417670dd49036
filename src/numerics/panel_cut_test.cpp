// Parts of weights in few bits against the whole: the same numbers under the same scales, wherever a part begins.
#include "numerics/panel_cut.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {
namespace {

std::size_t place(std::int64_t n, std::int64_t k, std::int64_t inputs) { return static_cast<std::size_t>((n / 16 * inputs + k) * 16 + n % 16); }

std::vector<float> numbers_of(std::int64_t outputs, std::int64_t inputs, std::uint64_t seed) {
  RandomSequence random(seed, RandomStream::fuzz);
  std::vector<float> image(static_cast<std::size_t>((outputs + 15) / 16 * 16 * inputs), 0.0f);
  for (std::int64_t n = 0; n < outputs; ++n)
    for (std::int64_t k = 0; k < inputs; ++k)
      image[place(n, k, inputs)] = static_cast<float>((random.uniform() - 0.5) * std::pow(10, 4 * random.uniform() - 3));
  return image;
}

// The part of an image.
std::vector<float> part_of(const std::vector<float>& image, std::int64_t inputs, std::int64_t output, std::int64_t input, std::int64_t own_outputs,
                           std::int64_t own_inputs) {
  std::vector<float> part(static_cast<std::size_t>((own_outputs + 15) / 16 * 16 * own_inputs), 0.0f);
  for (std::int64_t n = 0; n < own_outputs; ++n)
    for (std::int64_t k = 0; k < own_inputs; ++k) part[place(n, k, own_inputs)] = image[place(output + n, input + k, inputs)];
  return part;
}

struct Cut {
  std::int64_t output, input, outputs, inputs;
};
constexpr std::int64_t kOutputs = 300, kInputs = 328;  // neither a multiple of a group
constexpr Cut kCuts[] = {{0, 0, 300, 328}, {128, 0, 172, 328},   {0, 128, 300, 200}, {256, 256, 44, 72},
                         {0, 0, 128, 128}, {128, 128, 128, 128}, {128, 0, 0, 328}};

template <class Shape, class Encode, class Decode>
void expect_parts(const Shape& whole, const std::vector<Cut>& cuts, const Encode& encode, const Decode& decode) {
  const std::vector<float> image = numbers_of(whole.outputs, whole.inputs, 7);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(whole.bytes()));
  encode(image, whole, bytes);
  const std::vector<float> decoded = decode(bytes, whole);
  for (const Cut& cut : cuts) {
    Shape part = whole;
    part.outputs = cut.outputs, part.inputs = cut.inputs;
    std::vector<std::uint8_t> own(static_cast<std::size_t>(part.bytes()), 0xaa), made(own.size(), 0x55);
    cut_panels(bytes.data(), whole, cut.output, cut.input, part, own.data());
    EXPECT_EQ(decode(own, part), part_of(decoded, whole.inputs, cut.output, cut.input, cut.outputs, cut.inputs)) << cut.output << ", " << cut.input;
    // What ends where no scale is split is what the quantiser makes of the part, to the last byte of padding.
    encode(part_of(image, whole.inputs, cut.output, cut.input, cut.outputs, cut.inputs), part, made);
    EXPECT_EQ(own, made) << cut.output << ", " << cut.input;
  }
}

TEST(PanelCut, PartsHaveTheNumbersOfTheWhole) {
  const auto encode = [](const std::vector<float>& image, const LowBitShape& s, std::vector<std::uint8_t>& to) {
    encode_panels(image.data(), s, to.data(), 0, s.panels());
  };
  const auto decode = [](const std::vector<std::uint8_t>& bytes, const LowBitShape& s) {
    std::vector<float> image(static_cast<std::size_t>(s.panels() * s.inputs * 16));
    decode_panels(bytes.data(), s, image.data());
    return image;
  };
  const std::vector<Cut> of_blocks(std::begin(kCuts), std::end(kCuts));
  std::vector<Cut> of_outputs = of_blocks;
  of_outputs.insert(of_outputs.end(), {{33, 0, 33, 328}, {17, 32, 100, 64}, {7, 96, 5, 32}});
  for (const LowBitFormat format : {LowBitFormat::int4, LowBitFormat::mxfp8, LowBitFormat::mxfp4}) {
    SCOPED_TRACE(low_bit_format_name(format));
    expect_parts(LowBitShape{kOutputs, kInputs, format}, of_outputs, encode, decode);
  }
  expect_parts(LowBitShape{kOutputs, kInputs, LowBitFormat::fp8}, of_blocks, encode, decode);
  std::vector<Cut> of_both = of_blocks;
  of_both.insert(of_both.end(), {{32, 32, 64, 96}, {96, 0, 204, 64}});
  expect_parts(LowBitShape{kOutputs, kInputs, LowBitFormat::mxfp8_both}, of_both, encode, decode);
  const auto decode_across = [](const std::vector<std::uint8_t>& bytes, const LowBitShape& s) {
    std::vector<float> image(static_cast<std::size_t>(s.panels() * s.inputs * 16));
    decode_panels_across(bytes.data(), s, image.data());
    return image;
  };
  expect_parts(LowBitShape{kOutputs, kInputs, LowBitFormat::mxfp8_both}, of_both, encode, decode_across);
  for (const int bits : {8, 4})
    expect_parts(
        QuantisedShape{kOutputs, kInputs, bits}, of_outputs,
        [](const std::vector<float>& image, const QuantisedShape& s, std::vector<std::uint8_t>& to) {
          quantise_panels(image.data(), s, to.data(), 0, s.panels());
        },
        [](const std::vector<std::uint8_t>& bytes, const QuantisedShape& s) {
          std::vector<float> image(static_cast<std::size_t>(s.panels() * s.inputs * 16));
          dequantise_panels(bytes.data(), s, image.data());
          return image;
        });
}

// A scale that is computed of a part's own numbers, where a group goes on beyond it, is another one; so nothing is cut there.
TEST(PanelCut, ACutInsideAGroupIsAnErrorSinceItsScaleWouldBeAnother) {
  for (const auto& [format, output, input] : {std::tuple(LowBitFormat::int4, 0, 16),
                                              {LowBitFormat::mxfp8, 0, 8},
                                              {LowBitFormat::mxfp4, 0, 16},
                                              {LowBitFormat::fp8, 64, 0},
                                              {LowBitFormat::fp8, 0, 64},
                                              {LowBitFormat::mxfp8_both, 16, 0}}) {
    const LowBitShape whole{128, 128, format}, part{64, 64, format};
    std::vector<float> image = numbers_of(128, 128, 3);
    image[0] = 1e6f;  // outside the part, in a group with some of it
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(whole.bytes())), own(static_cast<std::size_t>(part.bytes()));
    encode_panels(image.data(), whole, bytes.data(), 0, whole.panels());
    EXPECT_THROW(cut_panels(bytes.data(), whole, output, input, part, own.data()), Error);
    encode_panels(part_of(image, 128, output, input, 64, 64).data(), part, own.data(), 0, part.panels());
    const auto decoded = [](const std::vector<std::uint8_t>& of, const LowBitShape& s) {
      std::vector<float> numbers(static_cast<std::size_t>(s.panels() * s.inputs * 16));
      if (s.format == LowBitFormat::mxfp8_both) decode_panels_across(of.data(), s, numbers.data());
      else decode_panels(of.data(), s, numbers.data());
      return numbers;
    };
    EXPECT_NE(decoded(own, part), part_of(decoded(bytes, whole), 128, output, input, 64, 64)) << low_bit_format_name(format);
  }
}

}  // namespace
}  // namespace lockstep
