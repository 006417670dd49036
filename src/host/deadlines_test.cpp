#include "host/deadlines.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace lockstep {
namespace {

TEST(Deadlines, CallsComeInTheOrderOfTheirTimes) {
  Deadlines deadlines;
  std::vector<int> order;  // of the one thread
  std::promise<void> last, all_added;
  deadlines.add(this, Deadlines::Clock::now(), [&] { all_added.get_future().wait(); });  // however long adding them takes
  const auto now = Deadlines::Clock::now();
  deadlines.add(this, now + std::chrono::milliseconds(60), [&] { order.push_back(3), last.set_value(); });
  deadlines.add(this, now + std::chrono::milliseconds(20), [&] { order.push_back(1); });
  deadlines.add(this, now + std::chrono::milliseconds(40), [&] { order.push_back(2); });
  all_added.set_value();
  last.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_GE(Deadlines::Clock::now() - now, std::chrono::milliseconds(60));
}

// Time for the thread to fall asleep, with nothing to wait for and with a later call to wait for.
TEST(Deadlines, ANearerOneWakesWhoSleeps) {
  Deadlines deadlines;
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::promise<void> called;
    deadlines.add(this, deadline_in(0.01), [&] { called.set_value(); });
    EXPECT_EQ(called.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready) << i;
    deadlines.add(this, deadline_in(3600), [] {});
  }
}

TEST(Deadlines, WhoIsForgottenIsNotCalledAndOthersAre) {
  Deadlines deadlines;
  const auto soon = deadline_in(0.02);
  int one = 0, two = 0;
  std::atomic<int> calls{0};
  std::promise<void> called, forgotten;
  deadlines.add(&two, Deadlines::Clock::now(), [&] { forgotten.get_future().wait(); });  // however long that takes
  deadlines.add(&one, soon, [&] { ++calls; });
  deadlines.add(&two, soon, [&] { called.set_value(); });
  deadlines.forget(&one);
  forgotten.set_value();
  called.get_future().wait();
  EXPECT_EQ(calls, 0);
}

TEST(Deadlines, ForgettingWaitsForACallThatIsUnderWay) {
  Deadlines deadlines;
  std::promise<void> begun;
  std::atomic<bool> done{false};
  deadlines.add(this, Deadlines::Clock::now(), [&] {
    begun.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    done = true;
  });
  begun.get_future().wait();
  deadlines.forget(this);
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace lockstep
