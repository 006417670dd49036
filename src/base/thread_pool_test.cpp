#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(ThreadPool, EveryIndexRunsOnceInManySmallJobs) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (int job = 0; job < 3000; ++job) {
      const int count = 1 + job % 37;
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      pool.run(count, [&](std::int64_t i) { runs[static_cast<std::size_t>(i)].fetch_add(1); });
      for (int i = 0; i < count; ++i) ASSERT_EQ(runs[static_cast<std::size_t>(i)].load(), 1) << "job " << job << ", index " << i;
    }
  }
}

// Were a higher index begun first, on one thread this would never end.
TEST(ThreadPool, AnIndexMayWaitForTheOneBeforeIt) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int job = 0; job < 200; ++job) {
      std::vector<int> done(64, 0), value(64, 0);
      pool.run(64, [&](std::int64_t i) {
        const auto at = static_cast<std::size_t>(i);
        while (i > 0 && std::atomic_ref(done[at - 1]).load(std::memory_order_acquire) == 0) std::this_thread::yield();
        value[at] = i > 0 ? value[at - 1] + 1 : 1;
        std::atomic_ref(done[at]).store(1, std::memory_order_release);
      });
      ASSERT_EQ(value.back(), 64) << threads;
    }
  }
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run(20,
                        [](std::int64_t i) {
                          if (i == 7) throw std::runtime_error("seven");
                        }),
               std::runtime_error);
  std::atomic<int> ran{0};
  pool.run(20, [&](std::int64_t) { ran.fetch_add(1); });
  EXPECT_EQ(ran.load(), 20);
}

}  // namespace
}  // namespace lockstep
