#include "host/client_json.h"

#include <gtest/gtest.h>

#include "base/growth_test_tools.h"
#include "base/json_members.h"

namespace lockstep {
namespace {

TEST(ClientJsonTest, KeepsWhatItWasGiven) {
  const auto value = nlohmann::ordered_json::parse(R"({"b":[1,{"c":null}],"a":"x"})");
  const ClientJson json(value);
  EXPECT_EQ(json.value().dump(), value.dump());
  EXPECT_EQ(json.bytes(), static_cast<std::int64_t>(value.dump().size()));
  EXPECT_EQ(ClientJson().value().dump(), "{}");
}

TEST(ClientJsonTest, IsFoundByAnyOfItsMembers) {
  const ClientJson json(nlohmann::ordered_json::parse(R"({"run":3,"who":"ann","more":{"a":[1]}})"));
  const auto found = [&](const char* wanted) { return json.has_members_of(nlohmann::ordered_json::parse(wanted)); };
  EXPECT_TRUE(found("{}"));
  EXPECT_TRUE(found(R"({"who":"ann"})"));
  EXPECT_TRUE(found(R"({"more":{"a":[1]},"run":3})"));
  EXPECT_FALSE(found(R"({"run":4})"));
  EXPECT_FALSE(found(R"({"run":3,"where":null})"));
  EXPECT_FALSE(found(R"({"more":{"a":[1,2]}})"));
  EXPECT_FALSE(ClientJson(nlohmann::ordered_json::array({1})).has_members_of({{"a", 1}}));
}

#ifndef __SANITIZE_THREAD__  // work that is counted on one thread: nothing for ThreadSanitizer to see
// Metadata of 16 KB may have thousands of members, and a search asks for as many, of each session.
TEST(ClientJsonTest, WorkGrowsWithTheMembers) {
  const auto make = [](std::size_t members) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < members; ++i) add_member(object, "k" + std::to_string(i), 1);
    return object;
  };
  EXPECT_LT(growth([&](std::size_t members) { return ClientJson(make(members)); }, [](const ClientJson& json) { json.value(); }, 500), kLinearGrowth);
  EXPECT_LT(growth(
                make, [](const nlohmann::ordered_json& object) { EXPECT_TRUE(ClientJson(object).has_members_of(object)); }, 500),
            kLinearGrowth);
}
#endif

}  // namespace
}  // namespace lockstep
