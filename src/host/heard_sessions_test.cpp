#include "host/heard_sessions.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep {
namespace {

TEST(HeardSessions, AnotherOwnersSessionIsAsGoodAsAbsent) {
  HeardSessions heard;
  heard.add("s", "ann", 1000);
  EXPECT_TRUE(heard.hear("s", "ann"));
  EXPECT_FALSE(heard.hear("s", "bob"));
  EXPECT_FALSE(heard.hear("t", "ann"));
  EXPECT_EQ(heard.seen("t"), 0);
}

TEST(HeardSessions, OneThatWasHeardStays) {
  HeardSessions heard;
  heard.add("s", "ann", 1000);
  EXPECT_FALSE(heard.is_silent("s", 3600));
  EXPECT_FALSE(heard.remove_silent("s", 3600));
  EXPECT_EQ(heard.seen("s"), 1000);
  EXPECT_TRUE(heard.hear("s", "ann"));
  EXPECT_GT(heard.seen("s"), 1e9);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(heard.is_silent("s", 0.01));
  EXPECT_FALSE(heard.hear("s", "bob"));  // is not the owner's
  EXPECT_TRUE(heard.is_silent("s", 0.01));
  EXPECT_TRUE(heard.hear("s", "ann"));
  EXPECT_FALSE(heard.is_silent("s", 3600));
  EXPECT_TRUE(heard.remove_silent("s", 0));
  EXPECT_FALSE(heard.hear("s", "ann"));
  EXPECT_TRUE(heard.is_silent("s", 3600));
}

}  // namespace
}  // namespace lockstep
