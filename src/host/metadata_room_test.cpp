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
  EXPECT_TRUE(room.hold("bob", kRoomMegabyte).owns_lock());
  EXPECT_FALSE(room.hold("ann", 64).owns_lock());  // nobody is held up
}

}  // namespace
}  // namespace lockstep
