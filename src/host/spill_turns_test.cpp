#include "host/spill_turns.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"

namespace lockstep {
namespace {

// A step that needs what another thread writes reads for that thread, though no other step can begin; live work goes on.
TEST(SpillTurns, AStepThatWaitsReadsForWhoWrites) {
  const auto executor = std::make_shared<Executor>();
  SpillTurns turns(executor);
  EXPECT_TRUE(turns.begin("a"));
  EXPECT_FALSE(turns.begin("a"));
  EXPECT_TRUE(turns.begin("b"));
  std::promise<void> entered;
  int read = 0;
  std::future<int> waits = run_on(*executor, WorkClass::training, [&](const OnExecutor& on) {
    entered.set_value();
    turns.wait(on, "a");
    return read;
  });
  entered.get_future().wait();
  for (int i = 0; i < 3; ++i) turns.run([&] { ++read; });
  EXPECT_EQ(executor->run(WorkClass::live, [&] { return read; }).get(), 3);
  EXPECT_EQ(waits.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_THROW(turns.run([] { fail(ErrorCode::numeric, "no values"); }), Error);
  turns.end("a");
  EXPECT_EQ(waits.get(), 3);
  turns.run([&] { ++read; });  // nobody waits
  EXPECT_EQ(executor->run(WorkClass::training, [&] { return read; }).get(), 4);
  EXPECT_TRUE(turns.begin("a"));
}

TEST(SpillTurns, AReadThatAStopOvertakesIsAnError) {
  const auto executor = std::make_shared<Executor>();
  SpillTurns turns(executor);
  std::promise<void> entered, go;
  executor->submit(WorkClass::training, [&] { return entered.set_value(), go.get_future().wait(), false; });
  entered.get_future().wait();
  bool read = false;
  std::future<void> late = std::async(std::launch::async, [&] { turns.run([&] { read = true; }); });
  while (executor->state().waiting.empty()) std::this_thread::yield();
  std::thread stops([&] { executor->stop(); });
  const auto takes_work = [&] {
    try {
      executor->submit(WorkClass::live, [] { return false; });
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  while (takes_work()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // until it stops
  go.set_value();
  stops.join();
  EXPECT_THROW(late.get(), std::exception);
  EXPECT_FALSE(read);
  EXPECT_THROW(turns.run([] {}), Error);
}

}  // namespace
}  // namespace lockstep
