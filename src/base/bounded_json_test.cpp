#include "base/bounded_json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  try {
    read_json(text, limits);
    return {};
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
}
std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }
std::string object_of(int keys) {
  std::string text = "{";
  for (int i = 0; i < keys; ++i) text += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  return text + "}";
}

TEST(BoundedJsonTest, ReadsWhatIsWithin) {
  EXPECT_EQ(read_json(R"({"b":[1,{"a":null}],"a":"x"})").dump(), R"({"b":[1,{"a":null}],"a":"x"})");  // in the order written
  EXPECT_EQ(refusal(nested(64)), "");
  EXPECT_EQ(refusal(object_of(4000)), "");
  EXPECT_EQ(read_json("3"), 3);
}

TEST(BoundedJsonTest, RefusesDepthKeysNumbersAndNonsense) {
  EXPECT_EQ(refusal(nested(65)), "nests deeper than 64 levels");
  EXPECT_EQ(refusal(std::string(1000000, '[')), "nests deeper than 64 levels");
  EXPECT_EQ(refusal(object_of(4002)), "has too many keys, allowed are 4000 in one object");
  EXPECT_EQ(refusal("[" + object_of(5) + "," + object_of(5) + "]", {.key_comparisons = 19}), "has too many keys, allowed are 6 in one object");
  EXPECT_EQ(refusal("[" + object_of(5) + "," + object_of(5) + "]", {.key_comparisons = 20}), "");
  EXPECT_EQ(refusal("[1e999]"), "has a number that no double holds");
  EXPECT_EQ(refusal("{\"a\":}"), "is not JSON: fault at byte 6 of 6");
  EXPECT_EQ(refusal("\"\xff\""), "is not JSON: fault at byte 2 of 3");
  EXPECT_EQ(refusal(""), "is not JSON: fault at byte 1 of 0");
  EXPECT_EQ(read_json_or_null(nested(65)), nullptr);
  EXPECT_EQ(read_json_or_null("{"), nullptr);
}

}  // namespace
}  // namespace lockstep
