#include "serving/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep {
namespace {

// Holds the executor's thread until release(), so that a test can fill the queues.
struct Gate {
  std::promise<void> open;
  explicit Gate(Executor& executor) {
    std::promise<void> entered;
    executor.submit(WorkPriority::live, [&entered, wait = open.get_future().share()] {
      entered.set_value();
      wait.wait();
      return false;
    });
    entered.get_future().wait();
  }
  void release() { open.set_value(); }
};

TEST(Executor, MoreUrgentWorkGoesFirst) {
  Executor executor;
  std::string order;
  Gate gate(executor);
  executor.submit(WorkPriority::training, [&] { return order += 't', false; });
  executor.submit(WorkPriority::rollouts, [&] { return order += 'r', false; });
  executor.submit(WorkPriority::live, [&] { return order += 'l', false; });
  gate.release();
  executor.drain();
  EXPECT_EQ(order, "lrt");
}

TEST(Executor, AnItemKeepsItsTurnWithinItsPriority) {
  Executor executor;
  std::string order;
  Gate gate(executor);
  int left = 3;
  executor.submit(WorkPriority::rollouts, [&] { return order += 'a', --left > 0; });
  executor.submit(WorkPriority::rollouts, [&] { return order += 'b', false; });
  gate.release();
  executor.drain();
  EXPECT_EQ(order, "aaab");
}

TEST(Executor, LiveTrafficGoesBetweenTheStepsOfTraining) {
  Executor executor;
  std::string order;
  Gate gate(executor);
  int steps = 0;
  executor.submit(WorkPriority::training, [&] {
    order += 't';
    if (++steps == 2) executor.submit(WorkPriority::live, [&] { return order += 'l', false; });
    return steps < 4;
  });
  gate.release();
  executor.drain();
  EXPECT_EQ(order, "ttltt");
}

TEST(Executor, RunGivesResultsAndExceptions) {
  Executor executor;
  EXPECT_EQ(executor.run(WorkPriority::training, [] { return 42; }).get(), 42);
  auto failing = executor.run(WorkPriority::live, []() -> int { fail(ErrorCode::numeric, "no"); });
  EXPECT_THROW(failing.get(), Error);
  EXPECT_TRUE(executor.run(WorkPriority::live, [&] { return executor.inside(); }).get());
  EXPECT_FALSE(executor.inside());
}

TEST(Executor, AThrowingStepIsDroppedAndOthersGoOn) {
  Executor executor;
  std::atomic<int> calls = 0;
  executor.submit(WorkPriority::live, [&]() -> bool {
    ++calls;
    throw std::runtime_error("broken on purpose");
  });
  EXPECT_EQ(executor.run(WorkPriority::training, [] { return 7; }).get(), 7);
  executor.drain();
  EXPECT_EQ(calls, 1);
}

TEST(Executor, StopDropsWhatWaitsAndRefusesMore) {
  Executor executor;
  std::atomic<int> steps = 0;
  std::future<int> never;
  {
    std::promise<void> started;
    executor.submit(WorkPriority::live, [&, told = false]() mutable {
      ++steps;
      if (!told) started.set_value();
      told = true;
      return true;
    });
    never = executor.run(WorkPriority::training, [] { return 1; });
    started.get_future().wait();
  }
  executor.stop();
  executor.stop();
  const int after = steps;
  EXPECT_GT(after, 0);
  EXPECT_THROW(never.get(), std::future_error);
  EXPECT_THROW(executor.submit(WorkPriority::live, [] { return false; }), Error);
  EXPECT_EQ(steps, after);
  executor.drain();
}

TEST(Executor, ManyThreadsSubmit) {
  Executor executor;
  int count = 0;  // the executor's thread alone
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i)
        executor.submit(static_cast<WorkPriority>(i % kWorkPriorities), [&] { return ++count, false; });
    });
  for (std::thread& thread : threads) thread.join();
  executor.drain();
  EXPECT_EQ(executor.run(WorkPriority::live, [&] { return count; }).get(), 2000);
}

}  // namespace
}  // namespace lockstep
