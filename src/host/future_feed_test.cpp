#include "host/future_feed.h"

#include <gtest/gtest.h>

#include <future>

namespace lockstep {
namespace {

std::vector<std::string> ids_of(const FeedPage& page) {
  std::vector<std::string> ids;
  for (const FinishedFuture& f : page.finished) ids.push_back(f.id);
  return ids;
}

TEST(FutureFeed, TellsWhatCameAfterTheCursorOnceAndForgetsWhatIsBefore) {
  FutureFeed feed(std::make_shared<Deadlines>());
  feed.add("key", "a", {"r1", false, 10});
  feed.add("key", "b", {"other", false, 10});
  feed.add("key", "a", {"r2", true, 0});
  FeedPage page;
  const auto ask = [&](std::int64_t cursor) {
    feed.wait("a", cursor, 0, [&](const FeedPage& p) { page = p; });
    return ids_of(page);
  };
  EXPECT_EQ(ask(0), (std::vector<std::string>{"r1", "r2"}));
  EXPECT_TRUE(page.finished[1].failed);
  const std::int64_t cursor = page.cursor;
  EXPECT_EQ(ask(0), (std::vector<std::string>{"r1", "r2"}));  // a lost answer
  EXPECT_TRUE(ask(cursor).empty());
  EXPECT_EQ(page.cursor, cursor);
  feed.add("key", "a", {"r3", false, 1});
  EXPECT_EQ(ask(cursor), (std::vector<std::string>{"r3"}));
  EXPECT_EQ(ask(0), (std::vector<std::string>{"r3"}));  // the others were acknowledged
}

TEST(FutureFeed, WhoWaitsIsToldWhenSomethingComesAndNoLaterThanAsked) {
  FutureFeed feed(std::make_shared<Deadlines>());
  std::promise<FeedPage> told, late;
  feed.wait("a", 0, 30, [&](const FeedPage& p) { told.set_value(p); });
  feed.wait("b", 7, 0.05, [&](const FeedPage& p) { late.set_value(p); });
  feed.add("key", "a", {"r1", false, 1});
  EXPECT_EQ(ids_of(told.get_future().get()), (std::vector<std::string>{"r1"}));
  const FeedPage nothing = late.get_future().get();
  EXPECT_TRUE(nothing.finished.empty());
  EXPECT_EQ(nothing.cursor, 7);
}

TEST(FutureFeed, TheLongestStreamGivesWayWhenAllTogetherAreTooMany) {
  FutureFeed feed(std::make_shared<Deadlines>(), 100, 10, 40);
  feed.add("key", "small", {"mine", false, 0});
  for (int i = 0; i < 90; ++i) feed.add("key", i % 2 == 0 ? "long" : "longer", {"r" + std::to_string(i), false, 0});
  std::size_t left = 0;
  for (const char* stream : {"small", "long", "longer"}) {
    FeedPage page;
    feed.wait(stream, 0, 0, [&](const FeedPage& p) { page = p; });
    left += page.finished.size();
    if (std::string(stream) == "small") {
      EXPECT_EQ(ids_of(page), (std::vector<std::string>{"mine"}));
    } else {
      EXPECT_EQ(ids_of(page).back(), std::string(stream) == "long" ? "r88" : "r89");
    }
  }
  EXPECT_LE(left, 40u);
  EXPECT_GE(left, 36u);
}

TEST(FutureFeed, WhoHasManyStreamsTakesNoPlaceFromOthers) {
  FutureFeed feed(std::make_shared<Deadlines>(), 100, 4, 20);
  const auto ask = [&](const std::string& stream) {
    FeedPage page;
    feed.wait(stream, 0, 0, [&](const FeedPage& p) { page = p; });
    return ids_of(page);
  };
  feed.add("mine", "m", {"r", false, 0});
  for (int i = 0; i < 10; ++i) feed.add("theirs", "t" + std::to_string(i), {"r", false, 0});
  EXPECT_EQ(ask("m").size(), 1u);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ask("t" + std::to_string(i)).size(), i < 7 ? 0u : 1u) << i;
  // The longest of all streams is not theirs, and most entries are.
  for (int i = 0; i < 8; ++i) feed.add("mine", "m", {"r", false, 0});
  for (int i = 0; i < 60; ++i) feed.add("theirs", "t" + std::to_string(7 + i % 3), {"r", false, 0});
  EXPECT_EQ(ask("m").size(), 9u);
  EXPECT_EQ(ask("t7").size() + ask("t8").size() + ask("t9").size(), 11u);
}

TEST(FutureFeed, HasItsLimits) {
  FutureFeed feed(std::make_shared<Deadlines>(), 3, 2);
  for (int i = 0; i < 5; ++i) feed.add("key", "a", {"r" + std::to_string(i), false, 0});
  FeedPage page;
  const auto ask = [&](const char* stream) {
    feed.wait(stream, 0, 0, [&](const FeedPage& p) { page = p; });
    return ids_of(page);
  };
  EXPECT_EQ(ask("a"), (std::vector<std::string>{"r2", "r3", "r4"}));
  feed.add("key", "b", {"x", false, 0});
  feed.add("key", "c", {"y", false, 0});
  EXPECT_TRUE(ask("a").empty());
  EXPECT_EQ(ask("c"), (std::vector<std::string>{"y"}));
}

}  // namespace
}  // namespace lockstep
