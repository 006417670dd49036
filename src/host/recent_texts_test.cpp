#include "host/recent_texts.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(RecentTexts, AnOwnerBeyondItsShareForgetsItsOwnOldest) {
  RecentTexts texts(KeyLimit(10, 50));
  texts.put("you", "m", 0, "yours");
  for (std::int64_t i = 0; i < 1000; ++i) texts.put("me", "n", i, std::to_string(i));
  EXPECT_EQ(texts.size(), 6);
  EXPECT_EQ(*texts.find("you", "m", 0), "yours");
  EXPECT_EQ(texts.find("me", "m", 0), nullptr);  // another's
  EXPECT_EQ(texts.find("me", "n", 994), nullptr);
  for (std::int64_t i = 995; i < 1000; ++i) EXPECT_EQ(*texts.find("me", "n", i), std::to_string(i));
  texts.put("me", "n", 995, "again");  // new again: 996 is the oldest now
  texts.put("me", "n", 1000, "1000");
  EXPECT_EQ(texts.find("me", "n", 996), nullptr);
  EXPECT_EQ(*texts.find("me", "n", 995), "again");
}

TEST(RecentTexts, ManyOwnersTogetherForgetTheOldestOfAll) {
  RecentTexts texts(KeyLimit(10, 50));
  for (std::int64_t i = 0; i < 1000; ++i) texts.put("owner-" + std::to_string(i), "m", i, "x");
  EXPECT_EQ(texts.size(), 10);
  EXPECT_EQ(texts.find("owner-989", "m", 989), nullptr);
  EXPECT_NE(texts.find("owner-990", "m", 990), nullptr);
}

TEST(RecentTexts, AScopeIsForgottenWhole) {
  RecentTexts texts(KeyLimit(100, 50));
  for (std::int64_t i = -2; i < 3; ++i) texts.put("me", "a", i, "a"), texts.put("me", "ab", i, "b");
  texts.forget("a");
  texts.erase("ab", 0);
  texts.erase("nothing", 0);
  EXPECT_EQ(texts.size(), 4);
  EXPECT_EQ(texts.find("me", "a", 1), nullptr);
  EXPECT_NE(texts.find("me", "ab", 1), nullptr);
}

}  // namespace
}  // namespace lockstep
