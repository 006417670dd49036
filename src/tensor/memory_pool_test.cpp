// The pool of buffers' memory: nothing overlaps, what is free is joined and found again, what lies idle goes back.
#include "tensor/memory_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "base/error.h"

namespace lockstep {
namespace {

#if !defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kMegabyte = std::size_t{1} << 20;

TEST(MemoryPool, FreedNeighboursServeALargerBlock) {
  MemoryPool pool(false);
  void* const a = pool.take(10 * kMegabyte);
  void* const b = pool.take(10 * kMegabyte);
  void* const c = pool.take(10 * kMegabyte);
  const std::size_t held = pool.held();
  EXPECT_EQ(pool.taken(), 30 * kMegabyte);
  pool.give(a, 10 * kMegabyte);
  pool.give(c, 10 * kMegabyte);
  pool.give(b, 10 * kMegabyte);
  EXPECT_EQ(pool.take(30 * kMegabyte), std::min({a, b, c}));
  EXPECT_EQ(pool.held(), held);
  pool.give(std::min({a, b, c}), 30 * kMegabyte);
  EXPECT_EQ(pool.taken(), 0u);
}

TEST(MemoryPool, WhatLiesIdleGoesBackUnlessWorkMayBeQueued) {
  for (const bool keep : {false, true}) {
    MemoryPool pool(keep, std::chrono::seconds(0));
    std::vector<void*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(pool.take(100 * kMegabyte));
    EXPECT_GE(pool.held(), 800 * kMegabyte);
    for (void* block : blocks) pool.give(block, 100 * kMegabyte);
    if (keep) EXPECT_GE(pool.held(), 800 * kMegabyte);
    else EXPECT_LE(pool.held(), 100 * kMegabyte);
  }
}

// Whole huge pages in the middle of a chunk go back while its ends are in use, and the blocks around are found and joined as before.
TEST(MemoryPool, TrimGivesBackWhatLiesIdleBetweenBlocks) {
  MemoryPool pool(false, std::chrono::seconds(1000));
  const std::int64_t before = pooled_memory();
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.take(8 * kMegabyte));
  for (int i = 0; i < 8; ++i) std::memset(blocks[static_cast<std::size_t>(i)], i, 8 * kMegabyte);
  for (const int i : {1, 2, 5, 7}) pool.give(blocks[static_cast<std::size_t>(i)], 8 * kMegabyte);
  pool.trim();
  EXPECT_LE(pool.held(), 40 * kMegabyte);  // four blocks, and at each end less than a huge page
  EXPECT_EQ(pooled_memory() - before, static_cast<std::int64_t>(pool.held()));
  for (const int i : {0, 3, 4, 6}) EXPECT_EQ(static_cast<char*>(blocks[static_cast<std::size_t>(i)])[5 * kMegabyte], i);
  void* const again = pool.take(16 * kMegabyte);
  std::memset(again, 9, 16 * kMegabyte);
  for (const int i : {0, 3, 4, 6}) {
    EXPECT_EQ(static_cast<char*>(blocks[static_cast<std::size_t>(i)])[8 * kMegabyte - 1], i);
    pool.give(blocks[static_cast<std::size_t>(i)], 8 * kMegabyte);
  }
  pool.give(again, 16 * kMegabyte);
  EXPECT_EQ(pool.taken(), 0u);
  pool.trim();
  EXPECT_EQ(pool.held(), 0u);
}

TEST(MemoryPool, AtTheLimitIdleMemoryGoesBackFirstAndMoreIsAnError) {
  struct Limit {
    ~Limit() { limit_pooled_memory(0); }
  } reset;
  MemoryPool pool(false, std::chrono::seconds(1000)), other(false, std::chrono::seconds(1000));
  limit_pooled_memory(pooled_memory() + static_cast<std::int64_t>(100 * kMegabyte));
  void* const a = pool.take(60 * kMegabyte);
  EXPECT_THROW(other.take(60 * kMegabyte), Error);  // all pools together
  try {
    pool.take(60 * kMegabyte);
    FAIL() << "beyond the limit";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
    EXPECT_NE(std::string(e.what()).find("--memory-megabytes"), std::string::npos) << e.what();
  }
  void* const b = pool.take(36 * kMegabyte);
  pool.give(a, 60 * kMegabyte);               // it stays in the pool ...
  void* const c = pool.take(62 * kMegabyte);  // ... until something else needs the room
  EXPECT_LE(pool.held(), 100 * kMegabyte);
  pool.give(b, 36 * kMegabyte);
  pool.give(c, 62 * kMegabyte);
  trim_pooled_memory();
  other.give(other.take(90 * kMegabyte), 90 * kMegabyte);
}

// Steps of training take and give the same again and again: the system must not clear their pages each time.
TEST(MemoryPool, WhatTheLastStepNeededIsKeptForAWhile) {
  MemoryPool pool(false, std::chrono::milliseconds(200));
  void* const weights = pool.take(kMegabyte);
  const auto step = [&] {
    std::vector<void*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(pool.take(100 * kMegabyte));
    for (void* block : blocks) pool.give(block, 100 * kMegabyte);
  };
  step();
  const std::size_t held = pool.held();
  EXPECT_GE(held, 800 * kMegabyte);
  step();
  EXPECT_EQ(pool.held(), held);
  // Small work goes on for two periods: nobody needed so much.
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(210));
    pool.give(pool.take(kMegabyte), kMegabyte);
  }
  EXPECT_LE(pool.held(), 100 * kMegabyte);
  pool.give(weights, kMegabyte);
}

// Idle blocks that are each too small for a large one are not kept beside it, while others are in use; small ones are.
TEST(MemoryPool, ALargeBlockTakesTheRoomOfIdleOnesThatAreTooSmall) {
  for (const std::size_t idle : {100 * kMegabyte, 4 * kMegabyte}) {
    MemoryPool pool(false, std::chrono::seconds(1000));
    void* const used = pool.take(500 * kMegabyte);
    std::vector<void*> blocks;
    for (std::size_t bytes = 0; bytes < 400 * kMegabyte; bytes += idle) blocks.push_back(pool.take(idle));
    for (void* block : blocks) pool.give(block, idle);
    EXPECT_GE(pool.held(), 900 * kMegabyte);
    void* const large = pool.take(300 * kMegabyte);
    EXPECT_EQ(pool.taken(), 800 * kMegabyte);
    EXPECT_LE(pool.held(), 932 * kMegabyte);  // 900 were in use
    static_cast<char*>(large)[300 * kMegabyte - 1] = static_cast<char*>(used)[500 * kMegabyte - 1] = 1;
    pool.give(large, 300 * kMegabyte);
    pool.give(used, 500 * kMegabyte);
    EXPECT_EQ(pool.taken(), 0u);
  }
  MemoryPool pool(false, std::chrono::seconds(1000));
  void* const used = pool.take(500 * kMegabyte);
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(pool.take(10 * kMegabyte));
  for (void* block : blocks) pool.give(block, 10 * kMegabyte);
  const std::size_t held = pool.held();
  void* const other = pool.take(40 * kMegabyte);  // 30 are the largest of what lies idle
  EXPECT_GE(pool.held(), held);
  pool.give(other, 40 * kMegabyte);
  pool.give(used, 500 * kMegabyte);
}
#endif

TEST(MemoryPool, BlocksOfAllSizesNeverOverlapAndKeepWhatTheyHold) {
  struct Block {
    unsigned char* at;
    std::size_t bytes;
    unsigned char mark;
  };
  MemoryPool pool(false);
  std::mt19937 random(5);
  std::vector<Block> live;
  const auto holds = [](const Block& b) {
    for (std::size_t i = 0; i < b.bytes; i += 61)
      if (b.at[i] != b.mark) return false;
    return b.at[b.bytes - 1] == b.mark;
  };
  for (int round = 0; round < 3000; ++round) {
    if (live.size() < 40 && random() % 2) {
      const std::size_t bytes = 1 + random() % (std::size_t{1} << (4 + random() % 20));
      Block b{static_cast<unsigned char*>(pool.take(bytes)), bytes, static_cast<unsigned char>(random())};
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(b.at) % 64, 0u);
      std::memset(b.at, b.mark, bytes);
      live.push_back(b);
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      ASSERT_TRUE(holds(live.back())) << "round " << round;
      pool.give(live.back().at, live.back().bytes);
      live.pop_back();
    }
  }
  for (const Block& b : live) {
    EXPECT_TRUE(holds(b));
    pool.give(b.at, b.bytes);
  }
  EXPECT_EQ(pool.taken(), 0u);
}

TEST(MemoryPool, MoreThanThereIsIsOneError) {
  MemoryPool pool(false);
  try {
    pool.take(std::size_t{1} << 62);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
  }
  pool.give(pool.take(100), 100);  // and it goes on
}

}  // namespace
}  // namespace lockstep
