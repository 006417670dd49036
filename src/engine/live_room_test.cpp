#include "engine/live_room.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::int64_t kAt = 50;  // where rows of decoding sequences stand

// Steps of decoding live rows and as many rows of rollouts as there is room for, whose time is computed.
class RoomBench {
 public:
  explicit RoomBench(double seconds) : room(seconds) {}
  // Of `wanted` rollouts that decode, those that had a row. Live ones have `guesses` rows of guessed tokens each.
  std::int64_t step(std::int64_t live, std::int64_t wanted, std::int64_t guesses = 0) {
    room.begin(live > 0);
    for (std::int64_t i = 0; i < live; ++i) room.take({kAt, 1, 1}, true);
    std::int64_t had = 0;
    for (; had < wanted && room.rows(kAt, 1, 1) == 1; ++had) room.take({kAt, 1, 1}, false);
    for (std::int64_t i = 0; i < live; ++i) room.take_guesses({kAt + 1, guesses, guesses}, true);
    seconds = seconds_of(live + had + live * guesses);
    room.observe(seconds);
    return had;
  }
  static double seconds_of(std::int64_t rows) { return 0.005 + 0.001 * static_cast<double>(rows); }

  LiveRoom room;
  double seconds = 0;  // of the last step
};

TEST(LiveRoom, AStepIsFilledAsFarAsItsTimeAllows) {
  RoomBench b(0.04);
  for (int i = 0; i < 40; ++i) b.step(4, 200);  // each measured step says how far the next may go
  for (int i = 0; i < 100; ++i) {
    const std::int64_t had = b.step(4, 200);
    EXPECT_LE(b.seconds, 0.0405);
    EXPECT_GE(had, 28);  // 31 rows and the live ones take the time
  }
  EXPECT_TRUE(b.room.holds_back());
  EXPECT_EQ(b.step(4, 10), 10);
  EXPECT_FALSE(b.room.holds_back());
  // Without a bound all are in every step.
  RoomBench without(0);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(without.step(4, 200), 200);
  EXPECT_GT(without.seconds, 0.2);
}

// Which are known when rollouts have their rows: as many as in the step before are expected.
TEST(LiveRoom, GuessesOfLiveOnesHaveTheirRoom) {
  RoomBench b(0.04);
  for (int i = 0; i < 60; ++i) b.step(4, 200, 3);
  for (int i = 0; i < 100; ++i) {
    const std::int64_t had = b.step(4, 200, 3);
    EXPECT_LE(b.seconds, 0.0415);
    EXPECT_GE(had, 15);  // 19 rows, those of four live ones and of their guesses take the time
  }
  b.step(4, 200);  // no guess any more
  EXPECT_GE(b.step(4, 200), 28);
}

TEST(LiveRoom, NoLiveStepIsEverFarTooLong) {
  // From the first step on, nothing being known: never more than twice what was measured.
  RoomBench b(0.04);
  for (int i = 0; i < 200; ++i) {
    b.step(1, 200);
    EXPECT_LE(b.seconds, 0.042) << i;
  }
}

TEST(LiveRoom, RolloutsGoOnWhereLiveRowsAloneTakeLonger) {
  RoomBench b(0.02);
  for (int i = 0; i < 40; ++i) b.step(40, 100);
  int with = 0, since = 0;
  for (int i = 0; i < 80; ++i) {
    const std::int64_t had = b.step(40, 100);
    ++since;
    if (had == 0) continue;
    EXPECT_EQ(had, 40 / LiveRoom::kLiveRows);
    EXPECT_EQ(since, LiveRoom::kWaits);
    since = 0;
    ++with;
  }
  EXPECT_EQ(with, 80 / LiveRoom::kWaits);
  // Beside a few live rows that take longer it is one.
  RoomBench few(0.001);
  std::int64_t rows = 0;
  for (int i = 0; i < 80; ++i) rows += few.step(2, 100);
  EXPECT_EQ(rows, 80 / LiveRoom::kWaits);
}

TEST(LiveRoom, TheBoundEndsSomeStepsAfterTheLastLiveOne) {
  RoomBench b(0.04);
  EXPECT_EQ(b.step(0, 200), 200);  // nobody live has been there yet
  for (int i = 0; i < 300; ++i) b.step(4, 30);
  for (int i = 1; i < LiveRoom::kStepsAfter; ++i) {
    const std::int64_t had = b.step(0, 200);
    EXPECT_GE(had, 1);
    EXPECT_LT(had, 40) << i;
  }
  EXPECT_EQ(b.step(0, 200), 200);
  // Who comes is beside few again at once.
  EXPECT_LT(b.step(4, 200), 40);
}

TEST(LiveRoom, AStepWithoutLiveRowsHasARow) {
  RoomBench b(0.001);
  for (int i = 0; i < 20; ++i) b.step(4, 4);
  EXPECT_EQ(b.step(0, 4), 1);  // their turn comes under other weights
}

TEST(LiveRoom, PromptsAreCutAndGuessesGoLast) {
  RoomBench b(0.04);
  for (int i = 0; i < 60; ++i) b.step(4, i % 30);
  b.room.begin(true);
  for (int i = 0; i < 4; ++i) b.room.take({kAt, 1, 1}, true);
  const std::int64_t chunk = b.room.rows(0, 128, 300);
  EXPECT_GT(chunk, 10);
  EXPECT_LT(chunk, 70);
  b.room.take({0, chunk, 0}, false);
  EXPECT_EQ(b.room.rows(chunk, 128, 300 - chunk), 0);
  EXPECT_EQ(b.room.guessed_rows(kAt, 4), 0);
  b.room.put_back({0, chunk, 0}, false);
  EXPECT_EQ(b.room.rows(0, 128, 300), chunk);
  EXPECT_EQ(b.room.guessed_rows(kAt, 4), 4);
}

// Without a bound rollouts that decode are all in every step; of their prompts a step has so many rows that it is kPromptSeconds longer than without them.
TEST(LiveRoom, PromptsGiveWayBesideLiveWork) {
  LiveRoom room(0);
  const auto step = [&](bool live, std::int64_t decoding, std::int64_t wanted) {
    room.begin(live);
    if (live) room.take({kAt, 1, 1}, true);
    for (std::int64_t i = 0; i < decoding; ++i) {
      EXPECT_EQ(room.rows(kAt, 1, 1), 1);
      room.take({kAt, 1, 1}, false);
    }
    std::int64_t had = 0;
    for (std::int64_t left = wanted; left > 0;) {  // of two prompts
      const std::int64_t asked = std::min<std::int64_t>(left, (wanted + 1) / 2), rows = room.prompt_rows(0, asked, 1000);
      EXPECT_EQ(room.rows(0, rows, 1000), rows);
      room.take({0, rows, 0}, false, true);
      had += rows;
      left -= asked;
    }
    room.observe(RoomBench::seconds_of((live ? 1 : 0) + decoding + had));
    return had;
  };
  for (int i = 0; i < 20; ++i) EXPECT_EQ(step(false, 10, 200), 200);  // nobody is there who would wait
  for (int i = 0; i < 10; ++i) EXPECT_LE(step(true, 10, 200), 80);    // only full steps were measured before
  for (int i = 0; i < 20; ++i) {
    const std::int64_t had = step(true, 10, 200);
    EXPECT_LE(had, 28);
    EXPECT_GE(had, 20);
  }
  for (int i = 0; i < 20; ++i) EXPECT_LE(step(false, 0, 200), 28);  // nor for a while after
  for (int i = 0; i < LiveRoom::kStepsAfter; ++i) step(false, 0, 1);
  EXPECT_EQ(step(false, 0, 100), 100);
  EXPECT_FALSE(room.holds_back());
}

}  // namespace
}  // namespace lockstep
