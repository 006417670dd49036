#include "parallel/deal.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

// The tree of `count` leaves as text, and that of the ranks' parts joined.
std::string tree(std::int64_t begin, std::int64_t end) {
  if (end - begin == 1) return std::to_string(begin);
  const std::int64_t middle = begin + (end - begin) / 2;
  return "(" + tree(begin, middle) + "+" + tree(middle, end) + ")";
}

TEST(Deal, RanksOwnWholeSubtreesAndJoinToTheTreeOfTheWhole) {
  for (std::int64_t leaves = 1; leaves <= 16; leaves *= 2)
    for (int ranks = 1; ranks <= 64; ++ranks) {
      const std::vector<std::int64_t> bounds = deal(leaves, ranks);
      ASSERT_EQ(bounds.size(), static_cast<std::size_t>(ranks) + 1);
      std::vector<std::string> part(static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) {
        const auto i = static_cast<std::size_t>(r);
        ASSERT_LE(bounds[i], bounds[i + 1]);
        const std::int64_t own = bounds[i + 1] - bounds[i];
        ASSERT_TRUE(own == 0 || ((own & (own - 1)) == 0 && bounds[i] % own == 0)) << leaves << " leaves, rank " << r << " of " << ranks;
        if (own > 0) part[i] = tree(bounds[i], bounds[i + 1]);
      }
      for (const auto& [into, from] : joins(leaves, ranks)) {
        auto& left = part[static_cast<std::size_t>(into)];
        const auto& right = part[static_cast<std::size_t>(from)];
        ASSERT_FALSE(left.empty() || right.empty());
        left = "(" + left + "+" + right + ")";
      }
      EXPECT_EQ(part[0], tree(0, leaves)) << leaves << " leaves, " << ranks << " ranks";
    }
}

TEST(Deal, OddNumbersGoUpOnTheLeft) {
  EXPECT_EQ(deal(3, 2), (std::vector<std::int64_t>{0, 2, 3}));
  EXPECT_EQ(deal(8, 3), (std::vector<std::int64_t>{0, 2, 4, 8}));
  EXPECT_EQ(deal(1, 3), (std::vector<std::int64_t>{0, 1, 1, 1}));
  EXPECT_EQ(deal(0, 2), (std::vector<std::int64_t>{0, 0, 0}));
  EXPECT_EQ(deal(9, 4), (std::vector<std::int64_t>{0, 3, 5, 7, 9}));
}

}  // namespace
}  // namespace lockstep
