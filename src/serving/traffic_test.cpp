#include "serving/traffic.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "base/error.h"

namespace lockstep {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.message();
  }
  return "nothing was refused";
}

std::map<std::string, int> chosen(const TrafficTable& traffic, int users) {
  std::map<std::string, int> counts;
  for (int i = 0; i < users; ++i) ++counts[traffic.choose("chat", fmt::format("user-{}", i)).value()];
  return counts;
}

TEST(Traffic, SharesAreAsTheWeightsSay) {
  TrafficTable traffic;
  traffic.set("chat", {{"v7", 95}, {"v8", 5}});
  constexpr int kUsers = 4000;  // the deviation of v8's count is 14
  const std::map<std::string, int> counts = chosen(traffic, kUsers);
  EXPECT_NEAR(counts.at("v8"), 200, 70);
  EXPECT_EQ(counts.at("v7") + counts.at("v8"), kUsers);
  traffic.set("chat", {{"v7", 1}, {"v8", 0}});
  EXPECT_EQ(chosen(traffic, 300).count("v8"), 0u);
  EXPECT_FALSE(traffic.choose("chatt", "ann"));
}

TEST(Traffic, WhoeverIsKnownStays) {
  TrafficTable traffic;
  traffic.set("chat", {{"v7", 60}, {"v8", 30}, {"v9", 10}});
  std::map<std::string, std::string> before;
  for (int i = 0; i < 1000; ++i) before[fmt::format("user-{}", i)] = traffic.choose("chat", fmt::format("user-{}", i)).value();
  for (const auto& [who, where] : before) EXPECT_EQ(traffic.choose("chat", who), where);
  // v9 takes from the others, and nobody moves between these.
  traffic.set("chat", {{"v7", 60}, {"v8", 30}, {"v9", 40}});
  int moved = 0;
  for (const auto& [who, where] : before) {
    const std::string now = traffic.choose("chat", who).value();
    if (now == where) continue;
    EXPECT_EQ(now, "v9") << who;
    ++moved;
  }
  EXPECT_GT(moved, 100);
  EXPECT_LT(moved, 350);
  // Whoever says nothing is spread anew each time.
  std::map<std::string, int> unknown;
  for (int i = 0; i < 400; ++i) ++unknown[traffic.choose("chat", "").value()];
  EXPECT_EQ(unknown.size(), 3u);
}

TEST(Traffic, AUserIsSpreadAnewUnderAnotherAlias) {
  TrafficTable traffic;
  int equal = 0;
  for (const char* alias : {"chat", "code"}) traffic.set(alias, {{"a", 1}, {"b", 1}});
  for (int i = 0; i < 400; ++i) equal += traffic.choose("chat", std::to_string(i)) == traffic.choose("code", std::to_string(i)) ? 1 : 0;
  EXPECT_NEAR(equal, 200, 80);
}

TEST(Traffic, RollingBackGoesToTheOneBefore) {
  TrafficTable traffic;
  traffic.set("chat", {{"v7", 1}});
  EXPECT_NE(message_of([&] { traffic.roll_back("chat"); }).find("nothing to go back to"), std::string::npos);
  traffic.set("chat", {{"v7", 95}, {"v8", 5}});
  traffic.set("chat", {{"v8", 1}});
  traffic.set("chat", {{"v8", 1}});  // the same again does not overwrite what was before
  EXPECT_EQ(shares_text(traffic.roll_back("chat").shares), "v7:95,v8:5");
  EXPECT_EQ(shares_text(traffic.roll_back("chat").shares), "v8:1");
  EXPECT_NE(message_of([&] { traffic.roll_back("caht"); }).find("did you mean 'chat'?"), std::string::npos);
}

TEST(Traffic, ADeploymentWithAShareDoesNotGo) {
  TrafficTable traffic;
  traffic.set("chat", {{"v7", 1}});
  traffic.set("chat", {{"v8", 1}});
  EXPECT_NE(message_of([&] { traffic.forget("v8"); }).find("the alias 'chat' has a share of 'v8'"), std::string::npos);
  traffic.forget("v7");
  EXPECT_NE(message_of([&] { traffic.roll_back("chat"); }).find("nothing to go back to"), std::string::npos);
  traffic.remove("chat");
  traffic.forget("v8");
  EXPECT_FALSE(traffic.has("chat"));
}

TEST(Traffic, BadSharesAreRefusedAndChangeNothing) {
  TrafficTable traffic;
  traffic.set("chat", {{"v7", 1}});
  const std::pair<std::vector<TrafficShare>, const char*> wrong[] = {{{}, "allowed are 1 to 16"},
                                                                     {{{"v7", 0}}, "weights of 0 alone"},
                                                                     {{{"v7", -1}}, "allowed is 0 to 1000000"},
                                                                     {{{"v7", 1}, {"v7", 2}}, "names 'v7' twice"},
                                                                     {{{"../v7", 1}}, "allowed is a name"},
                                                                     {std::vector<TrafficShare>(17, {"v7", 1}), "allowed are 1 to 16"}};
  for (const auto& [shares, words] : wrong) EXPECT_NE(message_of([&] { traffic.set("chat", shares); }).find(words), std::string::npos) << words;
  EXPECT_NE(message_of([&] { traffic.set("a/b", {{"v7", 1}}); }).find("an alias is 'a/b'"), std::string::npos);
  EXPECT_EQ(shares_text(traffic.find("chat")->shares), "v7:1");
  EXPECT_EQ(shares_text(parse_shares("v7:95,v8:5")), "v7:95,v8:5");
  EXPECT_EQ(shares_text(parse_shares("v7")), "v7:1");
  for (const char* text : {"", "v7:", "v7:x", "v7:1,", ":1", "v7:1x", "v7:99999999999999999999"})
    EXPECT_NE(message_of([&] { parse_shares(text); }).find("allowed is"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
