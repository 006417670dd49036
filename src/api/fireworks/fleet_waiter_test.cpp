// A hot load is answered when the fleet is ready or has failed, and otherwise after its time.
#include "api/fireworks/fleet_waiter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "api/api_test_tools.h"
#include "base/error.h"
#include "base/seconds.h"

namespace lockstep {
namespace {

// Does what a test says.
class ToldFleet : public FleetPort {
 public:
  std::vector<FleetMember> members() override { return {FleetMember{.name = "a", .stage = "downloading", .sequence = 1}}; }
  FleetSignal load(const std::string& identity, const std::string& transition) override {
    ++loads;
    return {identity, 1};
  }
  bool has_delivery(const std::string&) override { return delivery.valid(); }
  void take_in(const FleetDelivery&) override { delivery.get(); }
  FleetProgress progress(const FleetSignal& signal) override {
    ++looks;
    if (broken) return {.ready = false, .ended = true, .error = "replica a: it has no room"};
    return {.ready = ready, .ended = ready, .error = {}};
  }
  std::string describe() const override { return "store/chat"; }

  std::atomic<bool> ready{false}, broken{false};
  std::atomic<int> loads{0}, looks{0};
  std::shared_future<void> delivery;  // valid: files wait, which are taken in when it is there
};

class FleetWaiterTest : public testing::Test {
 protected:
  // A request for step-3.
  static std::shared_ptr<Recorder> asked(FleetWaiter& waiter) {
    const auto recorder = std::make_shared<Recorder>();
    waiter.load({.identity = "step-3"}, recorder);
    return recorder;
  }
  // Ten looks at the fleet later nobody has an answer.
  static void expect_waiting(const std::vector<std::shared_ptr<Recorder>>& all) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (const auto& one : all) EXPECT_FALSE(one->told());
  }
  static void expect_answer(Recorder& one, const Json& answer) {
    EXPECT_EQ(one.wait().status, 200);
    EXPECT_EQ(one.json(), answer);
  }

  const std::shared_ptr<ToldFleet> fleet_ = std::make_shared<ToldFleet>();
};

TEST_F(FleetWaiterTest, AFleetThatIsNotReadyIsToldAfterTheTime) {
  EXPECT_EQ(kLoadSeconds, 50);
  FleetWaiter waiter(fleet_, 0.3);
  const auto begin = std::chrono::steady_clock::now();
  const auto one = asked(waiter), two = asked(waiter);
  for (const auto& each : {one, two}) expect_answer(*each, {{"identity", "step-3"}, {"ready", false}});
  const double seconds = seconds_since(begin);
  EXPECT_GE(seconds, 0.3);
  EXPECT_LT(seconds, 20);
  EXPECT_EQ(fleet_->loads.load(), 2);  // which change nothing the second time
  EXPECT_GE(fleet_->looks.load(), 2);
  // Whoever asks again waits again.
  const auto later = std::chrono::steady_clock::now();
  expect_answer(*asked(waiter), {{"identity", "step-3"}, {"ready", false}});
  EXPECT_GE(seconds_since(later), 0.3);
}

TEST_F(FleetWaiterTest, ItIsToldAtOnceWhenTheFleetIsReady) {
  FleetWaiter waiter(fleet_, 600);
  const auto one = asked(waiter), two = asked(waiter);
  expect_waiting({one, two});
  fleet_->ready = true;
  for (const auto& each : {one, two}) expect_answer(*each, {{"identity", "step-3"}, {"ready", true}});
  expect_answer(*asked(waiter), {{"identity", "step-3"}, {"ready", true}});  // it is already
}

TEST_F(FleetWaiterTest, AReplicaThatFailsEndsTheWait) {
  FleetWaiter waiter(fleet_, 600);
  const auto one = asked(waiter);
  expect_waiting({one});
  fleet_->broken = true;
  expect_answer(*one, {{"identity", "step-3"}, {"ready", false}, {"message", "replica a: it has no room"}});
}

TEST_F(FleetWaiterTest, FilesThatAreTakenInSlowlyAreWaitedForNoLonger) {
  std::promise<void> taken;
  fleet_->delivery = taken.get_future().share();
  FleetWaiter waiter(fleet_, 0.3);
  const auto begin = std::chrono::steady_clock::now();
  expect_answer(*asked(waiter), {{"identity", "step-3"}, {"ready", false}});
  EXPECT_GE(seconds_since(begin), 0.3);
  EXPECT_EQ(fleet_->loads.load(), 0);
  EXPECT_EQ(waiter.members().front().stage, "downloading");
  // What is wrong with them is shown to those that ask for the replicas.
  taken.set_exception(std::make_exception_ptr(Error(ErrorCode::corrupt_file, "the files of step-3 are damaged")));
  std::vector<FleetMember> members = waiter.members();
  for (const auto since = std::chrono::steady_clock::now(); members.front().stage != "error" && seconds_since(since) < 60; members = waiter.members())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(members.front().stage, "error");
  EXPECT_EQ(members.front().target_identity, "step-3");
  EXPECT_NE(members.front().error.find("are damaged"), std::string::npos) << members.front().error;
}

TEST_F(FleetWaiterTest, WhoeverWaitsIsToldWhenTheServerEnds) {
  std::shared_ptr<Recorder> one;
  {
    FleetWaiter waiter(fleet_, 600);
    one = asked(waiter);
    expect_waiting({one});
  }
  expect_answer(*one, {{"identity", "step-3"}, {"ready", false}});
}

}  // namespace
}  // namespace lockstep
