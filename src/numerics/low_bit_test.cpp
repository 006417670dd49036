// The low-bit formats against a direct implementation of their definitions.
#include "numerics/low_bit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "numerics/profile.h"

namespace lockstep {
namespace {

constexpr LowBitFormat kFormats[] = {LowBitFormat::int4, LowBitFormat::fp8, LowBitFormat::mxfp8, LowBitFormat::mxfp4};

// S.EEEE.MMM with a bias of 7, subnormals, and no infinity.
double e4m3_value(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}
// The nearest code by looking at all of them; of two as near the even one.
int nearest_code(float x) {
  int best = 0;
  double least = 1e300;
  for (int code = 0; code < 0x7f; ++code) {
    const double distance = std::fabs(e4m3_value(code) - std::fabs(static_cast<double>(x)));
    if (distance < least || (distance == least && code % 2 == 0)) least = distance, best = code;
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}

// The same of E2M1, by its list of numbers.
float nearest_e2m1(float x) {
  constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  int best = 0;
  for (int code = 1; code < 8; ++code) {
    const float nearer = std::fabs(kNumbers[code] - std::fabs(x)), before = std::fabs(kNumbers[best] - std::fabs(x));
    if (nearer < before || (nearer == before && code % 2 == 0)) best = code;
  }
  return std::copysign(kNumbers[best], x);
}

std::vector<float> random_image(const LowBitShape& s, std::uint64_t seed) {
  RandomSequence random(seed, RandomStream::fuzz);
  std::vector<float> image(static_cast<std::size_t>(s.panels() * s.inputs * 16), 0.0f);
  for (std::int64_t n = 0; n < s.outputs; ++n)
    for (std::int64_t k = 0; k < s.inputs; ++k)
      image[static_cast<std::size_t>((n / 16 * s.inputs + k) * 16 + n % 16)] =
          static_cast<float>((random.uniform() - 0.5) * std::pow(10, 6 * random.uniform() - 4));
  return image;
}
std::vector<std::uint8_t> encoded(const std::vector<float>& image, const LowBitShape& s) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(s.bytes()), 0xaa);
  encode_panels(image.data(), s, bytes.data(), 0, s.panels());
  return bytes;
}
std::vector<float> decoded(const std::vector<std::uint8_t>& bytes, const LowBitShape& s) {
  std::vector<float> image(static_cast<std::size_t>(s.panels() * s.inputs * 16));
  decode_panels(bytes.data(), s, image.data());
  return image;
}

TEST(E4m3, RoundsToNearestEvenAndSaturates) {
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    const auto value = static_cast<float>(e4m3_value(code));
    EXPECT_EQ(float_bits(widen_e4m3(static_cast<std::uint32_t>(code))), float_bits(value)) << code;
    EXPECT_EQ(round_to_e4m3(value), code);
    if ((code & 0x7f) == 0x7e) continue;
    const auto next = static_cast<float>(e4m3_value(code + 1)), middle = (value + next) / 2;
    EXPECT_EQ(round_to_e4m3(middle), code + code % 2) << "a tie above " << code;
    EXPECT_EQ(round_to_e4m3(std::nextafter(middle, value)), code);
    EXPECT_EQ(round_to_e4m3(std::nextafter(middle, next)), code + 1);
  }
  RandomSequence random(3, RandomStream::fuzz);
  for (int i = 0; i < 200'000; ++i) {
    const auto x = static_cast<float>((random.uniform() - 0.5) * std::pow(2, 24 * random.uniform() - 14));
    ASSERT_EQ(round_to_e4m3(x), nearest_code(x)) << x;
  }
  EXPECT_EQ(round_to_e4m3(449.0f), 0x7e);
  EXPECT_EQ(round_to_e4m3(-1e30f), 0xfe);
  EXPECT_EQ(round_to_e4m3(-0.0f), 0x80);
  EXPECT_EQ(round_to_e4m3(std::nanf("")) & 0x7f, 0x7f);
}

TEST(LowBitWeights, AreThoseOfTheDefinition) {
  for (const LowBitFormat format : kFormats)
    for (const auto& [outputs, inputs] : std::vector<std::pair<std::int64_t, std::int64_t>>{{300, 290}, {128, 128}, {17, 33}, {1, 1}, {129, 64}}) {
      const LowBitShape s{outputs, inputs, format};
      const std::vector<float> image = random_image(s, 7), got = decoded(encoded(image, s), s);
      const auto at = [&](std::int64_t n, std::int64_t k) { return static_cast<std::size_t>((n / 16 * inputs + k) * 16 + n % 16); };
      const std::int64_t rows = format == LowBitFormat::fp8 ? 128 : 1, columns = format == LowBitFormat::fp8 ? 128 : 32;
      std::size_t changed = 0;
      for (std::int64_t n0 = 0; n0 < outputs; n0 += rows)
        for (std::int64_t k0 = 0; k0 < inputs; k0 += columns) {
          float largest = 0;
          for (std::int64_t n = n0; n < std::min(outputs, n0 + rows); ++n)
            for (std::int64_t k = k0; k < std::min(inputs, k0 + columns); ++k) largest = std::max(largest, std::fabs(image[at(n, k)]));
          float scale;
          if (format == LowBitFormat::int4) {
            scale = widen(round_to_bf16(largest / 7.0f));
          } else if (format == LowBitFormat::mxfp8 || format == LowBitFormat::mxfp4) {
            scale = static_cast<float>(std::ldexp(1.0, std::ilogb(largest) - (format == LowBitFormat::mxfp8 ? 8 : 2)));
          } else {
            scale = 0x1p-100f;
            while (largest > 448 * scale) scale *= 2;
          }
          for (std::int64_t n = n0; n < std::min(outputs, n0 + rows); ++n)
            for (std::int64_t k = k0; k < std::min(inputs, k0 + columns); ++k) {
              const float x = image[at(n, k)];
              const float want = format == LowBitFormat::int4    ? static_cast<float>(std::nearbyint(x * (1.0f / scale))) * scale + 0.0f
                                 : format == LowBitFormat::mxfp4 ? nearest_e2m1(x / scale) * scale
                                                                 : static_cast<float>(e4m3_value(nearest_code(x / scale))) * scale;
              ASSERT_EQ(float_bits(got[at(n, k)]), float_bits(want)) << low_bit_format_name(format) << " " << n << ", " << k;
              changed += float_bits(want) != float_bits(x);
            }
        }
      EXPECT_GT(changed, 0u) << "the control: packing changes numbers";
      // Again: the same numbers. Padding is zero.
      const std::vector<float> again = decoded(encoded(got, s), s);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(float_bits(again[i]), float_bits(got[i])) << i;
      for (std::int64_t n = outputs; n < s.panels() * 16; ++n)
        for (std::int64_t k = 0; k < inputs; ++k) ASSERT_EQ(float_bits(got[at(n, k)]), 0u);
    }
}

TEST(LowBitWeights, ZerosTinyAndLargeNumbersAndNaN) {
  for (const LowBitFormat format : kFormats) {
    const LowBitShape s{16, 32, format};
    const auto of = [&](float first, float rest) {
      std::vector<float> image(16 * 32, rest);
      image[0] = first;
      return decoded(encoded(image, s), s);
    };
    for (const float v : of(0x1p-120f, -0x1p-130f)) EXPECT_EQ(float_bits(v) & 0x7fffffffu, 0u) << low_bit_format_name(format);
    EXPECT_GT(of(3e38f, 1)[0], format == LowBitFormat::mxfp4 ? 2.5e38f : 2.6e38f);  // 7 units become 6
    EXPECT_TRUE(std::isfinite(of(3.1e38f, 1)[0]));  // above 248 * 2^120 the nearest number of a block is 2^128: an infinity, as in any rounding to nearest
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      const std::vector<float> got = of(bad, 1);
      EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[16])) << low_bit_format_name(format);
      if (format == LowBitFormat::fp8) EXPECT_TRUE(std::isnan(got[1]));
      else EXPECT_FALSE(std::isnan(got[1])) << "another output has a scale of its own";
    }
  }
}

TEST(E2m1, RoundsToNearestEvenAndSaturates) {
  RandomSequence random(4, RandomStream::fuzz);
  for (int i = 0; i < 100'000; ++i) {
    const auto x = static_cast<float>((random.uniform() - 0.5) * 16);
    ASSERT_EQ(float_bits(widen_e2m1(round_to_e2m1(x))), float_bits(nearest_e2m1(x))) << x;
  }
  for (const float tie : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f, 7.5f, -0.0f, -0.25f})
    EXPECT_EQ(float_bits(widen_e2m1(round_to_e2m1(tie))), float_bits(nearest_e2m1(tie))) << tie;
}

// Numbers that are MXFP4 already, also where a group's largest is no 4 or 6 and the quantiser takes another scale.
TEST(Mxfp4, WhatWasDecodedIsKept) {
  constexpr std::int64_t kGroups = 400;
  RandomSequence random(6, RandomStream::fuzz);
  std::vector<std::uint8_t> blocks(kGroups * 16), scales(kGroups), again_blocks(blocks.size()), again_scales(scales.size());
  for (std::int64_t g = 0; g < kGroups; ++g) {
    scales[static_cast<std::size_t>(g)] = static_cast<std::uint8_t>(37 + random.below(210));
    const std::uint32_t codes = 1 + random.below(7);  // the largest magnitude of the group at most
    for (std::int64_t i = 0; i < 16; ++i)
      blocks[static_cast<std::size_t>(g * 16 + i)] = static_cast<std::uint8_t>(random.below(codes + 1) | random.below(2) << 3 | random.below(codes + 1) << 4);
  }
  std::vector<float> values(kGroups * kMxfp4Group), again(values.size());
  decode_mxfp4(blocks.data(), scales.data(), kGroups, values.data());
  encode_mxfp4(values.data(), 1, kGroups, again_blocks.data(), again_scales.data());
  decode_mxfp4(again_blocks.data(), again_scales.data(), kGroups, again.data());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(float_bits(again[i]), float_bits(values[i])) << i;
  EXPECT_NE(again_scales, scales) << "the control: some groups have no 4 and no 6";
}

// A part of the panels alone has the bytes of the whole.
TEST(LowBitWeights, PanelsStandAlone) {
  for (const LowBitFormat format : {LowBitFormat::int4, LowBitFormat::fp8, LowBitFormat::mxfp8, LowBitFormat::mxfp4, LowBitFormat::mxfp8_both}) {
    const LowBitShape s{400, 200, format};
    const std::vector<float> image = random_image(s, 9);
    const std::vector<std::uint8_t> whole = encoded(image, s);
    std::vector<std::uint8_t> parts(whole.size(), 0x55);
    for (std::int64_t panel = 0; panel < s.panels(); panel += 8) encode_panels(image.data(), s, parts.data(), panel, std::min(s.panels(), panel + 8));
    EXPECT_EQ(parts, whole) << low_bit_format_name(format);
  }
}

// The forward reads mxfp8 of the matrix, the input gradient that of the transposed one: groups of 32 outputs.
TEST(LowBitWeights, BothWaysAreThoseOfTheMatrixAndOfTheTransposed) {
  for (const auto& [outputs, inputs] : std::vector<std::pair<std::int64_t, std::int64_t>>{{300, 90}, {64, 32}, {17, 33}, {1, 1}, {33, 16}}) {
    const LowBitShape both{outputs, inputs, LowBitFormat::mxfp8_both}, along{outputs, inputs, LowBitFormat::mxfp8},
        turned{inputs, outputs, LowBitFormat::mxfp8};
    const std::vector<float> image = random_image(both, 8);
    const auto at = [](const LowBitShape& s, std::int64_t n, std::int64_t k) { return static_cast<std::size_t>((n / 16 * s.inputs + k) * 16 + n % 16); };
    std::vector<float> transposed(static_cast<std::size_t>(turned.panels() * turned.inputs * 16), 0.0f);
    for (std::int64_t n = 0; n < outputs; ++n)
      for (std::int64_t k = 0; k < inputs; ++k) transposed[at(turned, k, n)] = image[at(both, n, k)];
    const std::vector<std::uint8_t> bytes = encoded(image, both);
    const std::vector<float> forward = decoded(bytes, both);
    EXPECT_EQ(forward, decoded(encoded(image, along), along));
    const std::vector<float> want = decoded(encoded(transposed, turned), turned);
    std::vector<float> got(image.size());
    decode_panels_across(bytes.data(), both, got.data());
    std::size_t different = 0;
    for (std::int64_t n = 0; n < outputs; ++n)
      for (std::int64_t k = 0; k < inputs; ++k) {
        ASSERT_EQ(float_bits(got[at(both, n, k)]), float_bits(want[at(turned, k, n)])) << n << ", " << k;
        different += float_bits(got[at(both, n, k)]) != float_bits(forward[at(both, n, k)]);
      }
    if (outputs > 32 && inputs > 32) {
      EXPECT_GT(different, 0u) << "the control: the two ways round differently";
    }
  }
}

// A row has the numbers of a matrix of one output: one quantiser.
TEST(LowBitRows, AreThoseOfAMatrixOfOneOutput) {
  for (const LowBitFormat format : {LowBitFormat::fp8, LowBitFormat::mxfp8})
    for (const std::int64_t n : {1, 31, 32, 100, 128, 300, 1024}) {
      const LowBitShape s{1, n, format};
      const std::vector<float> image = random_image(s, static_cast<std::uint64_t>(n)), want = decoded(encoded(image, s), s);
      std::vector<float> row(static_cast<std::size_t>(n)), got(row.size());
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = image[16 * i];
      round_row(row.data(), n, format, got.data());
      for (std::size_t i = 0; i < row.size(); ++i) ASSERT_EQ(float_bits(got[i]), float_bits(want[16 * i])) << low_bit_format_name(format) << " " << i;
      if (n > 1) {
        EXPECT_NE(got, row) << "the control: rounding changes numbers";
      }
      std::vector<float> again(got.size());
      round_row(got.data(), n, format, again.data());
      EXPECT_EQ(again, got);
    }
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    std::vector<float> row(64, 1.0f);
    row[5] = bad;
    round_row(row.data(), 64, LowBitFormat::mxfp8, row.data());
    EXPECT_TRUE(std::isnan(row[0]) && std::isnan(row[31]) && row[32] == 1.0f);
  }
  std::vector<float> tiny(32, -0x1p-120f);
  round_row(tiny.data(), 32, LowBitFormat::mxfp8, tiny.data());
  for (const float v : tiny) EXPECT_EQ(float_bits(v), 0u);
}

TEST(LowBitWeights, BytesOfALargeMatrix) {
  const double bf16 = 2.0 * 4096 * 4096;
  EXPECT_LE(static_cast<double>((LowBitShape{4096, 4096, LowBitFormat::int4}.bytes())), 0.2813 * bf16);
  EXPECT_LE(static_cast<double>((LowBitShape{4096, 4096, LowBitFormat::fp8}.bytes())), 0.5011 * bf16);
  EXPECT_LE(static_cast<double>((LowBitShape{4096, 4096, LowBitFormat::mxfp8}.bytes())), 0.5157 * bf16);
  EXPECT_LE(static_cast<double>((LowBitShape{4096, 4096, LowBitFormat::mxfp4}.bytes())), 0.2657 * bf16);
  EXPECT_LE(static_cast<double>((LowBitShape{4096, 4096, LowBitFormat::mxfp8_both}.bytes())), 1.0470 * bf16);
}

TEST(LowBitWeights, ProfilesDiffer) {
  std::vector<std::string> digests;
  for (const Profile& p : profiles()) digests.push_back(p.digest());
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::adjacent_find(digests.begin(), digests.end()), digests.end());
  EXPECT_EQ(low_bit_format_of(profile_by_name("cpu-fp8-experts").weight_bits), LowBitFormat::fp8);
  EXPECT_EQ(low_bit_format_of(profile_by_name("cpu-int4w").weight_bits), LowBitFormat::none);
  EXPECT_EQ(low_bit_format_of(profile_by_name("cpu-mxfp8-experts").weight_bits), LowBitFormat::mxfp8_both);
  EXPECT_EQ(profile_by_name("cpu-mxfp8-experts-base").digest(), "725acd8b884f2fcd") << "what it was as cpu-mxfp8-experts, before that trained";
}

}  // namespace
}  // namespace lockstep
