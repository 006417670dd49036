#include "base/guarded.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(Guarded, OneAtATime) {
  Guarded<std::vector<int>> values(std::in_place, 1, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        const auto held = values.lock();
        const int before = (*held)[0];
        if (i % 1000 == 0) std::this_thread::yield();  // where another would come between
        (*held)[0] = before + 1;
      }
    });
  for (std::thread& thread : threads) thread.join();
  const auto held = values.lock();
  EXPECT_EQ(held->front(), 20000);
}

TEST(Guarded, WhoTriesWaitsForNobody) {
  Guarded<int> value(std::in_place, 7);
  {
    const auto held = value.lock();
    bool got = true;
    std::thread([&] { got = value.try_lock().has_value(); }).join();
    EXPECT_FALSE(got);
  }
  const auto held = value.try_lock();
  ASSERT_TRUE(held);
  EXPECT_EQ(**held, 7);
}

}  // namespace
}  // namespace lockstep
