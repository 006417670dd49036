// MXFP4 against its definition, every code under every scale.
#include "numerics/mxfp4.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "numerics/element.h"

namespace lockstep {
namespace {

double e2m1_value(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double magnitude = exponent == 0 ? mantissa * 0.5 : std::ldexp(2 + mantissa, exponent - 2);
  return code & 8 ? -magnitude : magnitude;
}

TEST(Mxfp4, HasTheNumbersOfTheDefinition) {
  for (int scale = 0; scale < 256; ++scale) {
    std::vector<std::uint8_t> blocks, scales(2, static_cast<std::uint8_t>(scale));
    for (int byte = 0; byte < 32; ++byte) blocks.push_back(static_cast<std::uint8_t>(byte * 37 % 256));
    std::vector<float> values(64);
    decode_mxfp4(blocks.data(), scales.data(), 2, values.data());
    for (std::size_t i = 0; i < 64; ++i) {
      const int code = blocks[i / 2] >> (i % 2 * 4) & 15;
      if (scale == 255) {
        ASSERT_TRUE(std::isnan(values[i]));
        continue;
      }
      const auto want = static_cast<float>(std::ldexp(e2m1_value(code), scale - 127));
      ASSERT_EQ(values[i], want) << code << " under " << scale;  // 6 x 2^127 is beyond fp32: there both are infinite
      ASSERT_EQ(std::signbit(values[i]), (code & 8) != 0) << code;
    }
  }
}

}  // namespace
}  // namespace lockstep
