// Many words at once against one word at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "numerics/isa/word_classes.h"

namespace lockstep {
namespace {

std::uint32_t word(const std::vector<std::uint8_t>& bytes, int width, std::int64_t i) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + i * width, static_cast<std::size_t>(width));
  return value;
}

TEST(WordClasses, DifferencesAndClassesAreThoseOfSingleWords) {
  std::mt19937_64 random(7);
  for (const auto& [field, low, most] :
       {std::tuple(WordField{1, 3, 15}, 2, 9), std::tuple(WordField{2, 7, 255}, 100, 15), std::tuple(WordField{2, 10, 31}, 0, 15),
        std::tuple(WordField{4, 23, 255}, 241, 14), std::tuple(WordField{4, 0, 0}, 0, 0), std::tuple(WordField{1, 2, 31}, 0, 15)}) {
    constexpr std::int64_t kBlocks = 9;
    std::vector<std::uint8_t> a(kBlocks * 64 * static_cast<std::size_t>(field.width)), b;
    for (std::uint8_t& byte : a) byte = static_cast<std::uint8_t>(random());
    b = a;
    for (int i = 0; i < 40; ++i) b[random() % b.size()] ^= static_cast<std::uint8_t>(1u << (random() % 8));
    std::vector<std::uint64_t> differ(kBlocks);
    difference_masks(a.data(), b.data(), field.width, kBlocks, differ.data());
    std::vector<std::uint8_t> classes(kBlocks * 64);
    word_classes(a.data(), field, low, most, kBlocks * 64, classes.data());
    for (std::int64_t i = 0; i < kBlocks * 64; ++i) {
      EXPECT_EQ(differ[static_cast<std::size_t>(i / 64)] >> (i % 64) & 1, word(a, field.width, i) != word(b, field.width, i)) << field.width << " " << i;
      const int bits = static_cast<int>(word(a, field.width, i) >> field.shift) & field.mask;
      EXPECT_EQ(classes[static_cast<std::size_t>(i)], std::min(std::max(bits, low) - low, most)) << field.width << " " << i;
    }
  }
}

TEST(WordClasses, CountsRanksAndPlacesAgree) {
  std::mt19937_64 random(8);
  const bool wide = use_wide_word_classes(false);
  for (int round = 0; round < 100; ++round) {
    if (round == 50) use_wide_word_classes(wide);
    std::vector<std::uint8_t> group(kClassGroup);
    for (std::uint8_t& c : group) c = static_cast<std::uint8_t>(round % 50 == 0 ? 3 : std::min<std::uint64_t>(random() % 20, random() % 20));
    std::int32_t counts[16];
    count_classes(group.data(), 16, counts);
    for (int c = 0; c < 16; ++c) {
      int rank = 0;
      for (int i = 0; i < kClassGroup; ++i) {
        EXPECT_EQ(class_rank(group.data(), c, i), rank);
        if (group[static_cast<std::size_t>(i)] != c) continue;
        EXPECT_EQ(class_place(group.data(), c, rank), i);
        ++rank;
      }
      EXPECT_EQ(counts[c], rank);
      EXPECT_EQ(class_rank(group.data(), c, kClassGroup), rank);
    }
  }
}

}  // namespace
}  // namespace lockstep
