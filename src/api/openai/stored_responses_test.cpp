// What is kept has a size, of a key and of all; whoever holds most gives way.
#include "api/openai/stored_responses.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {
StoredResponse of_size(std::size_t bytes) { return {std::string(bytes / 2, 'r'), {}, std::string(bytes / 2, 'm')}; }

TEST(StoredResponses, ItemsCount) {
  StoredResponses kept;
  kept.put("a", "1", {"r", {{"i", std::string(1000, 'x')}, {"j", "y"}}, "m"});
  EXPECT_EQ(kept.bytes(), 1005 + 2 * sizeof(StoredItem));
}

TEST(StoredResponses, AKeyKeepsTheLastUsed) {
  StoredResponses kept(std::size_t{64} << 20);
  EXPECT_EQ(kept.most_bytes_of_key(), StoredResponses::kMostBytes);
  for (int i = 0; i < 5; ++i) kept.put("a", std::to_string(i), of_size(8 << 20));
  EXPECT_EQ(kept.bytes(), std::size_t{32} << 20);
  EXPECT_EQ(kept.find("a", "0"), nullptr);
  ASSERT_NE(kept.find("a", "1"), nullptr);  // used
  kept.put("a", "5", of_size(8 << 20));
  EXPECT_NE(kept.find("a", "1"), nullptr);
  EXPECT_EQ(kept.find("a", "2"), nullptr);
  kept.put("a", "6", of_size(33 << 20));  // more than a key may have
  EXPECT_EQ(kept.find("a", "6"), nullptr);
  EXPECT_EQ(kept.find("b", "1"), nullptr);
}

TEST(StoredResponses, WhoHoldsMostGivesWay) {
  StoredResponses kept(std::size_t{10} << 20);
  EXPECT_EQ(kept.most_bytes_of_key(), std::size_t{10} << 20);
  kept.put("small", "s", of_size(1 << 20));
  for (int i = 0; i < 20; ++i) {
    kept.put("a", std::to_string(i), of_size(1 << 20));
    kept.put("b", std::to_string(i), of_size(1 << 20));
    EXPECT_LE(kept.bytes(), std::size_t{10} << 20);
  }
  EXPECT_NE(kept.find("small", "s"), nullptr);  // whatever others do
  EXPECT_NE(kept.find("a", "19"), nullptr);
  EXPECT_NE(kept.find("b", "19"), nullptr);
  EXPECT_TRUE(kept.erase("small", "s"));
  for (const char* owner : {"a", "b"})
    for (int i = 0; i < 20; ++i) kept.erase(owner, std::to_string(i));
  EXPECT_EQ(kept.bytes(), 0u);
}
}  // namespace
}  // namespace lockstep
