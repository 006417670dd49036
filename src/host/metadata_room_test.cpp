#include "host/metadata_room.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr std::int64_t kRoomMegabyte = std::int64_t{1} << 20;

TEST(MetadataRoom, OfManyWhoComeAtOnceThereIsRoomForAsManyAsTheLimitSays) {
  MetadataRoom room(kRoomMegabyte, KeyLimit(4 * kRoomMegabyte, 100));
  std::atomic<std::int64_t> held{0};
  room.add_source([&](const MetadataRoom::Count& count) { count("ann", held); });
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      try {
        const auto hold = room.hold("ann", kRoomMegabyte);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // where another would count
        held += kRoomMegabyte;
      } catch (const Error& e) {
        refused += e.code() == ErrorCode::resource_exhausted;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(held, 4 * kRoomMegabyte);
  EXPECT_EQ(refused, 4);
}

TEST(MetadataRoom, AKeyHasItsShareAndALittleIsNotCounted) {
  MetadataRoom room(kRoomMegabyte, KeyLimit(4 * kRoomMegabyte, 50));
  room.add_source([&](const MetadataRoom::Count& count) { count("ann", 2 * kRoomMegabyte); });
  EXPECT_THROW(static_cast<void>(room.hold("ann", kRoomMegabyte)), Error);
  EXPECT_TRUE(room.hold("bob", kRoomMegabyte));
  EXPECT_FALSE(room.hold("ann", 64));
}

// A record that is written to a slow disk while its bytes are held: they count, and nobody else waits where there is room.
TEST(MetadataRoom, OthersComeInWhileOneIsWritten) {
  MetadataRoom room(kRoomMegabyte, KeyLimit(3 * kRoomMegabyte, 100));
  std::int64_t kept = 0;
  room.add_source([&](const MetadataRoom::Count& count) { count("ann", kept); });
  std::shared_ptr<void> slow = room.hold("ann", 2 * kRoomMegabyte);
  EXPECT_TRUE(room.hold("bob", kRoomMegabyte));  // on this thread: it would wait for itself
  std::atomic<bool> refused{false};
  std::thread third([&] {
    try {
      static_cast<void>(room.hold("bob", 2 * kRoomMegabyte));  // waits: one of the two is on its way
    } catch (const Error& e) {
      refused = e.code() == ErrorCode::resource_exhausted;
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(refused);
  kept = 2 * kRoomMegabyte;
  slow = nullptr;
  third.join();
  EXPECT_TRUE(refused);
  slow = room.hold("ann", kRoomMegabyte);
  std::thread fourth([&] { static_cast<void>(room.hold("bob", kRoomMegabyte)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  slow = nullptr;  // it could not be written
  fourth.join();
}

}  // namespace
}  // namespace lockstep
