#include "checkpoint/gguf_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace lockstep {
namespace {
// All bits of all types against the `gguf` package: tests/oracle/test_gguf.py. Here: one block each, worked out by hand.

std::vector<float> decoded(std::uint32_t id, const std::vector<std::uint8_t>& bytes) {
  const GgufType* type = gguf_type(id);
  std::vector<float> values(static_cast<std::size_t>(type->block_values));
  EXPECT_EQ(static_cast<std::int64_t>(bytes.size()), type->block_bytes) << type->name;
  type->decode(bytes.data(), values.data(), 1);
  return values;
}

// The half 2.0, then `more`, then zeros up to `size`.
std::vector<std::uint8_t> block(std::size_t size, const std::vector<std::pair<std::size_t, std::uint8_t>>& more) {
  std::vector<std::uint8_t> bytes(size);
  bytes[1] = 0x40;
  for (const auto& [at, value] : more) bytes[at] = value;
  return bytes;
}

TEST(GgufTypes, Plain) {
  EXPECT_EQ(decoded(0, {0, 0, 0x80, 0xbf})[0], -1.0f);
  EXPECT_EQ(decoded(1, {0x00, 0x3c})[0], 1.0f);
  EXPECT_EQ(decoded(1, {0x01, 0x80})[0], -0x1p-24f);  // subnormal
  EXPECT_EQ(decoded(1, {0xff, 0x7b})[0], 65504.0f);
  EXPECT_TRUE(std::isinf(decoded(1, {0x00, 0x7c})[0]));
  EXPECT_EQ(decoded(30, {0x80, 0x3f})[0], 1.0f);
}

TEST(GgufTypes, BlocksOf32) {
  const auto q8 = decoded(8, block(34, {{2, 3}, {33, 0x80}}));
  EXPECT_EQ(q8[0], 6.0f);
  EXPECT_EQ(q8[31], -256.0f);
  const auto q4 = decoded(2, block(18, {{2, 0x9f}}));
  EXPECT_EQ(q4[0], 14.0f);   // 2 (15 - 8)
  EXPECT_EQ(q4[16], 2.0f);   // 2 (9 - 8)
  EXPECT_EQ(q4[1], -16.0f);  // 2 (0 - 8)
  const auto q41 = decoded(3, block(20, {{3, 0x3c}, {4, 0x21}}));
  EXPECT_EQ(q41[0], 3.0f);   // 2 x 1 + 1
  EXPECT_EQ(q41[16], 5.0f);  // 2 x 2 + 1
  const auto q5 = decoded(6, block(22, {{2, 1}, {4, 1}, {6, 0x21}}));
  EXPECT_EQ(q5[0], 2.0f);   // 2 (16 + 1 - 16)
  EXPECT_EQ(q5[16], 4.0f);  // 2 (16 + 2 - 16)
  EXPECT_EQ(q5[1], -32.0f);
  const auto q51 = decoded(7, block(24, {{3, 0x3c}, {4, 1}, {8, 0x21}}));
  EXPECT_EQ(q51[0], 35.0f);  // 2 (16 + 1) + 1
  EXPECT_EQ(q51[16], 5.0f);
}

TEST(GgufTypes, BlocksOf256) {
  // Scale of group 0: 3, minimum 5; of group 5: 0x2f (low bits 0xf at byte 9, high bits 0b10 at byte 1), minimum 0x1e.
  const auto q4 = decoded(12, block(144, {{3, 0x3c}, {4, 3}, {8, 5}, {5, 0x80}, {9, 0x40}, {13, 0xef}, {16, 0x07}, {16 + 64, 0x90}}));
  EXPECT_EQ(q4[0], 2 * 3 * 7 - 5.0f);
  EXPECT_EQ(q4[5 * 32], 2 * 0x2f * 9 - float{0x1e});
  const auto q5 = decoded(13, block(176, {{3, 0x3c}, {4, 3}, {8, 5}, {16, 1}, {48, 0x07}}));
  EXPECT_EQ(q5[0], 2 * 3 * (16 + 7) - 5.0f);
  auto six = std::vector<std::uint8_t>(210);
  six[209] = 0x40;            // 2.0
  six[192 + 13] = 0xff;       // scale -1 of values 208 to 223
  six[64 + 16] = 0x50;        // value 208 (group 6): high four bits of low[64 + 16]
  six[128 + 32 + 16] = 0x20;  // bits 4 and 5
  const auto q6 = decoded(14, six);
  EXPECT_EQ(q6[208], 2 * -1 * float{(5 | 2 << 4) - 32});
  EXPECT_EQ(q6[0], 0.0f);
}

TEST(GgufTypes, BitsAWeight) {
  EXPECT_EQ(gguf_type(12)->bits_a_weight(), 4.5);
  EXPECT_EQ(gguf_type(13)->bits_a_weight(), 5.5);
  EXPECT_EQ(gguf_type(14)->bits_a_weight(), 6.5625);
  EXPECT_EQ(gguf_type(8)->bits_a_weight(), 8.5);
  EXPECT_EQ(gguf_type(42), nullptr);
  EXPECT_EQ(gguf_type(16)->decode, nullptr);
  EXPECT_EQ(readable_gguf_types().size(), 11u);
}

}  // namespace
}  // namespace lockstep
