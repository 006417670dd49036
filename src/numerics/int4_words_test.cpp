// INT4 weights in the order of files and in that of kernels: the same numbers, and back to the same words.
#include "numerics/int4_words.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/philox.h"
#include "numerics/low_bit.h"

namespace lockstep {
namespace {

struct Rows {
  std::vector<std::uint32_t> words;
  std::vector<Bf16> scales;
};

// Any integers from -8 to 7 and any scales, as a file has them: bits beyond a row are 0.
Rows random_rows(const QuantisedShape& s, std::uint64_t seed) {
  RandomSequence random(seed, RandomStream::fuzz);
  Rows rows{std::vector<std::uint32_t>(static_cast<std::size_t>(s.outputs * int4_words(s.inputs))), {}};
  for (std::int64_t n = 0; n < s.outputs; ++n)
    for (std::int64_t k = 0; k < s.inputs; ++k)
      rows.words[static_cast<std::size_t>(n * int4_words(s.inputs) + k / 8)] |= static_cast<std::uint32_t>(random.uniform() * 16) << (k % 8 * 4);
  for (std::int64_t i = 0; i < s.outputs * s.groups(); ++i) rows.scales.push_back(round_to_bf16(static_cast<float>(random.uniform() - 0.25)));
  return rows;
}

constexpr QuantisedShape kShapes[] = {{16, 32, 4}, {1, 8, 4}, {37, 96, 4}, {20, 68, 4}, {5, 3, 4}, {128, 200, 4}};

TEST(Int4Words, PanelsHaveTheNumbersOfTheWords) {
  for (const QuantisedShape& s : kShapes) {
    const Rows rows = random_rows(s, static_cast<std::uint64_t>(s.inputs));
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(s.bytes()), 0xaa);
    words_to_panels(rows.words.data(), rows.scales.data(), s, bytes.data());
    const LowBitShape shape{s.outputs, s.inputs, LowBitFormat::int4};
    bool lowest = false;
    for (std::int64_t n = 0; n < s.panels() * 16; ++n)
      for (std::int64_t k = 0; k < s.inputs; ++k) {
        float want = 0;  // of outputs beyond the last
        if (n < s.outputs) {
          const int q = static_cast<int>(rows.words[static_cast<std::size_t>(n * int4_words(s.inputs) + k / 8)] >> (k % 8 * 4) & 15u) - 8;
          lowest = lowest || q == -8;
          want = static_cast<float>(q) * widen(rows.scales[static_cast<std::size_t>(n * s.groups() + k / kQuantisedGroup)]);
        }
        ASSERT_EQ(float_bits(low_bit_element(bytes.data() + n / 16 * s.panel_bytes(), shape, n % 16, k)), float_bits(want))
            << s.outputs << " x " << s.inputs << " at " << n << ", " << k;
      }
    EXPECT_TRUE(lowest || s.outputs == 1 || s.inputs == 3) << "no -8 was tried";
    // What lies beyond a row is no number of it: q = 0 for every kernel that reads whole groups.
    const std::uint8_t* groups = bytes.data() + s.scale_bytes();
    for (std::int64_t k = s.inputs; k < s.groups() * kQuantisedGroup; ++k) EXPECT_EQ(quantised_integer(groups, 4, 0, k), 0) << k;
  }
}

TEST(Int4Words, PanelsGiveBackTheWords) {
  for (const QuantisedShape& s : kShapes) {
    const Rows rows = random_rows(s, 7 + static_cast<std::uint64_t>(s.outputs));
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(s.bytes()), 0xaa);
    words_to_panels(rows.words.data(), rows.scales.data(), s, bytes.data());
    Rows back{std::vector<std::uint32_t>(rows.words.size(), 0xffffffffu), std::vector<Bf16>(rows.scales.size())};
    panels_to_words(bytes.data(), s, back.words.data(), back.scales.data());
    EXPECT_EQ(back.words, rows.words) << s.outputs << " x " << s.inputs;
    for (std::size_t i = 0; i < rows.scales.size(); ++i) ASSERT_EQ(back.scales[i].bits, rows.scales[i].bits) << i;
  }
}

}  // namespace
}  // namespace lockstep
