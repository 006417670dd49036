#include "host/intake.h"

#include <gtest/gtest.h>

#include <future>

namespace lockstep {
namespace {

TEST(Intake, WaitsForWhoIsInsideAndLetsNobodyInAfter) {
  Intake intake;
  std::promise<void> inside, leave;
  std::atomic<bool> submitted{false};
  std::thread client([&] {
    const Intake::Entry entry = intake.enter();
    entry.check();
    inside.set_value();
    leave.get_future().wait();
    submitted = true;
  });
  inside.get_future().wait();
  auto closing = std::async(std::launch::async, [&] {
    const bool first = intake.close();
    return first && submitted;
  });
  while (!intake.closed()) std::this_thread::yield();
  {
    const Intake::Entry late = intake.enter();
    EXPECT_FALSE(late.is_open());
    EXPECT_THROW(late.check(), Error);
  }
  EXPECT_EQ(closing.wait_for(std::chrono::milliseconds(30)), std::future_status::timeout);
  leave.set_value();
  EXPECT_TRUE(closing.get());
  client.join();
  EXPECT_FALSE(intake.close());
}

}  // namespace
}  // namespace lockstep
