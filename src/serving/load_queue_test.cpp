// Each load is done once for all who want it, one after another; who waits too long is told so, and what runs goes on; at the end nobody waits for ever.
#include "serving/load_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/error.h"

namespace lockstep {
namespace {
using namespace std::chrono_literals;

struct Told {
  std::promise<std::pair<std::string, bool>> promise;  // the fault's message, whether it was late
  std::future<std::pair<std::string, bool>> future = promise.get_future();
  LoadQueue::Then then() {
    return [this](std::exception_ptr fault, bool late) {
      std::string message;
      try {
        if (fault) std::rethrow_exception(fault);
      } catch (const Error& e) {
        message = e.message();
      }
      promise.set_value({message, late});
    };
  }
};

LoadQueue::Clock::time_point deadline_in(std::chrono::milliseconds time) { return LoadQueue::Clock::now() + time; }

TEST(LoadQueue, OnceForAllAndOneAfterAnother) {
  LoadQueue queue;
  std::promise<void> may_end;
  std::shared_future<void> end = may_end.get_future().share();
  std::atomic<int> loads = 0, others = 0;
  Told first, second, other;
  const auto load = [&] {
    end.wait();
    ++loads;
  };
  queue.ask("a", load, deadline_in(100s), first.then());
  queue.ask(
      "b", [&] { others = loads.load(); }, deadline_in(100s), other.then());
  queue.ask("a", load, deadline_in(100s), second.then());
  queue.ask("a", load, {}, nullptr);
  EXPECT_TRUE(queue.asked("a") && queue.asked("b"));
  EXPECT_FALSE(queue.asked("c"));
  may_end.set_value();
  for (Told* one : {&first, &second, &other}) EXPECT_EQ(one->future.get(), (std::pair<std::string, bool>("", false)));
  EXPECT_EQ(loads, 1);
  EXPECT_EQ(others, 1);  // b's turn was behind a's
  Told again;
  queue.ask("a", load, deadline_in(100s), again.then());
  again.future.get();
  EXPECT_EQ(loads, 2);
}

TEST(LoadQueue, WhoWaitsTooLongIsToldAndTheLoadGoesOn) {
  LoadQueue queue;
  std::promise<void> may_end;
  std::shared_future<void> end = may_end.get_future().share();
  Told patient, hasty, faulty;
  const auto load = [&] { end.wait(); };
  queue.ask("a", load, deadline_in(100s), patient.then());
  queue.ask("a", load, deadline_in(20ms), hasty.then());
  EXPECT_EQ(hasty.future.get(), (std::pair<std::string, bool>("", true)));
  EXPECT_EQ(patient.future.wait_for(0ms), std::future_status::timeout);
  EXPECT_TRUE(queue.asked("a"));
  may_end.set_value();
  EXPECT_EQ(patient.future.get(), (std::pair<std::string, bool>("", false)));
  queue.ask(
      "b", [] { fail(ErrorCode::io, "the disk is gone"); }, deadline_in(100s), faulty.then());
  EXPECT_EQ(faulty.future.get(), (std::pair<std::string, bool>("the disk is gone", false)));
}

TEST(LoadQueue, WhoWaitsAtTheEndIsTold) {
  LoadQueue queue;
  std::promise<void> began, may_end;
  Told running, waiting, late;
  const auto load = [&] {
    began.set_value();
    may_end.get_future().wait();
  };
  queue.ask("a", load, LoadQueue::Clock::time_point::max(), running.then());
  queue.ask(
      "b", [] {}, deadline_in(100s), waiting.then());
  began.get_future().wait();
  std::thread stopping([&] { queue.stop(); });
  // Until it stops, when it takes nothing more, and waits for what runs.
  auto takes = [&, number = 0]() mutable {
    const std::string name = std::to_string(++number);
    queue.ask(
        name, [] {}, {}, nullptr);
    return queue.asked(name);
  };
  while (takes()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(running.future.wait_for(0ms), std::future_status::timeout);
  may_end.set_value();
  stopping.join();
  EXPECT_EQ(running.future.get(), (std::pair<std::string, bool>("", false)));
  EXPECT_EQ(waiting.future.get(), (std::pair<std::string, bool>("the server stops", false)));
  queue.ask("a", load, deadline_in(100s), late.then());
  EXPECT_EQ(late.future.get(), (std::pair<std::string, bool>("the server stops", false)));
}

TEST(LoadQueue, ItSaysHowLongItMayTake) {
  LoadQueue queue;
  EXPECT_EQ(queue.expected_seconds("a"), 1);
  Told told;
  queue.ask(
      "a", [] { std::this_thread::sleep_for(1200ms); }, deadline_in(100s), told.then());
  told.future.get();
  EXPECT_GE(queue.expected_seconds("a"), 1.2);
  EXPECT_GE(queue.expected_seconds("b"), 1.2);
  EXPECT_LT(queue.expected_seconds("b"), 60);
}

}  // namespace
}  // namespace lockstep
