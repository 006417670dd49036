#include "base/json_members.h"

#include <gtest/gtest.h>

#include "base/growth_test_tools.h"

namespace lockstep {
namespace {
using MembersJson = nlohmann::ordered_json;

TEST(JsonMembersTest, FindsWhatAnObjectHas) {
  const MembersJson object = MembersJson::parse(R"({"b":1,"a":null,"":[2]})");
  const JsonMembers members(object);
  EXPECT_EQ(*members.find("b"), 1);
  EXPECT_EQ(members.find("a"), &object["a"]);
  EXPECT_EQ(members.find("")->dump(), "[2]");
  EXPECT_EQ(members.find("c"), nullptr);
}

TEST(JsonMembersTest, OfBothTheOtherWinsInTheFirstOnesPlace) {
  const auto both = [](const char* object, const char* over) { return members_of_both(MembersJson::parse(object), MembersJson::parse(over)).dump(); };
  EXPECT_EQ(both(R"({"a":1,"b":2})", R"({"c":3,"a":[4]})"), R"({"a":[4],"b":2,"c":3})");
  EXPECT_EQ(both("{}", R"({"c":3})"), R"({"c":3})");
  EXPECT_EQ(both(R"({"a":1})", "{}"), R"({"a":1})");
  EXPECT_EQ(both(R"({"a":1})", R"({"a":null})"), R"({"a":null})");
}

#ifndef __SANITIZE_THREAD__  // work that is counted on one thread: nothing for ThreadSanitizer to see
TEST(JsonMembersTest, WorkGrowsWithTheMembers) {
  const auto make = [](std::size_t members) {
    MembersJson object = MembersJson::object();
    for (std::size_t i = 0; i < members; ++i) add_member(object, "member " + std::to_string(i), i);
    return object;
  };
  EXPECT_LT(growth([](std::size_t members) { return members; }, make, 1000), kLinearGrowth);
  EXPECT_LT(growth(
                make, [](const MembersJson& object) { members_of_both(object, object); }, 500),
            kLinearGrowth);
  const auto find_all = [](const MembersJson& object) {
    const JsonMembers members(object);
    for (const auto& member : object.items()) EXPECT_NE(members.find(member.key()), nullptr);
  };
  EXPECT_LT(growth(make, find_all, 500), kLinearGrowth);
}
#endif

}  // namespace
}  // namespace lockstep
