#include "host/routing_matrix.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {
namespace {
constexpr ExpertShape kFew{2, 2, 8}, kMany{2, 2, 384}, kWide{58, 8, 256};

std::string matrix_refusal(const ExpertShape& shape, std::string_view text) {
  try {
    experts_of_matrix(shape, text, "m");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "taken";
}

// The texts are Python's base64.b64encode of the bytes.
TEST(RoutingMatrix, IsTheBytesOfTheIds) {
  EXPECT_EQ(routing_matrix(kFew, std::vector<std::uint16_t>{1, 5, 0, 7}), "AQUABw==");
  EXPECT_EQ(routing_matrix({3, 2, 8}, std::vector<std::uint16_t>{1, 5, 0, 7, 3, 4}), "AQUABwME");
  EXPECT_EQ(routing_matrix({5, 1, 256}, std::vector<std::uint16_t>{255, 254, 253, 252, 251}), "//79/Ps=");
  EXPECT_EQ(routing_matrix(kMany, std::vector<std::uint16_t>{3, 300, 255, 256}), "AwAsAf8AAAE=");  // two bytes an id
  EXPECT_EQ(routing_matrix(kFew, {}), "");
}

TEST(RoutingMatrix, IsReadBackAscendingInEachLayer) {
  EXPECT_EQ(experts_of_matrix(kFew, "AQUABw==", "m"), (std::vector<std::int32_t>{1, 5, 0, 7}));
  EXPECT_EQ(experts_of_matrix(kFew, "BQEHAA==", "m"), (std::vector<std::int32_t>{1, 5, 0, 7}));
  EXPECT_EQ(experts_of_matrix(kMany, "AwAsAf8AAAE=", "m"), (std::vector<std::int32_t>{3, 300, 255, 256}));
  EXPECT_EQ(experts_of_matrix(kFew, "", "m"), std::vector<std::int32_t>(4, kOwnExperts));
  EXPECT_EQ(experts_of_matrix({}, "", "m"), std::vector<std::int32_t>());
  RandomSequence draws(3, RandomStream::fuzz);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::uint16_t> experts;
    for (std::int64_t layer = 0; layer < kWide.layers; ++layer)
      for (std::uint32_t j = 0; j < 8; ++j) experts.push_back(static_cast<std::uint16_t>(32 * j + draws.below(32)));
    const std::string text = routing_matrix(kWide, experts);
    EXPECT_EQ(text.size(), 620u);  // of 464 bytes
    const std::vector<std::int32_t> back = experts_of_matrix(kWide, text, "m");
    EXPECT_TRUE(std::equal(back.begin(), back.end(), experts.begin(), experts.end()));
  }
}

TEST(RoutingMatrix, WhatIsWrongIsNamed) {
  EXPECT_EQ(matrix_refusal(kFew, "AQUABw=="), "taken");
  EXPECT_EQ(matrix_refusal(kFew, "AQUABw="), "m has 7 characters, allowed is base64, padded to a multiple of 4");
  EXPECT_EQ(matrix_refusal(kFew, "AQU-Bw=="), "m has the byte 0x2d at 3, which base64 has not");
  EXPECT_EQ(matrix_refusal(kFew, "A==ABw=="), "m has the byte 0x3d at 1, which base64 has not");
  EXPECT_EQ(matrix_refusal(kFew, "===="), "m has the byte 0x3d at 0, which base64 has not");
  EXPECT_EQ(matrix_refusal(kFew, "AQUABx=="), "m ends in bits that no byte has; allowed is base64 whose last bits are 0");
  EXPECT_EQ(matrix_refusal(kFew, "AQUA"), "m has 3 bytes, allowed are 4 (2 sparse layers, 2 experts a token, one byte a number)");
  EXPECT_EQ(matrix_refusal(kMany, "AQUABw=="), "m has 4 bytes, allowed are 8 (2 sparse layers, 2 experts a token, two bytes a number)");
  EXPECT_EQ(matrix_refusal(kFew, "AQUACA=="), "m names expert 8 in sparse layer 1, allowed are 0 to 7");
  EXPECT_EQ(matrix_refusal(kFew, "AQEABw=="), "m names expert 1 twice in sparse layer 0, allowed is once");
  EXPECT_EQ(matrix_refusal({}, "AQUABw=="), "m names experts, and the model has none; allowed is \"\"");
}

}  // namespace
}  // namespace lockstep
