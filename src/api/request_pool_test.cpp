#include "api/request_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <future>
#include <list>
#include <thread>

#include "api/api_test_tools.h"
#include "api/body_budget.h"
#include "api/errors.h"
#include "base/bounded_json.h"
#include "base/seconds.h"

namespace lockstep {
namespace {
const RequestPool::Failed kTold = [](const std::exception& e) { return error_response(e); };

ApiRequest request_of(const std::string& owner) {
  ApiRequest request;
  request.owner = owner;
  return request;
}

// Works until it is told, or nobody waits.
struct Gate {
  std::promise<void> promise;
  std::shared_future<void> open = promise.get_future().share();
  std::atomic<int> entered{0};
  RequestPool::Work work() {
    return [this](ApiRequest&) {
      ++entered;
      while (open.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) ClientWork::check();
    };
  }
  bool enter(int count) {
    for (int i = 0; i < 5000 && entered < count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return entered == count;
  }
};

TEST(RequestPoolTest, OneOwnerLeavesAThreadForOthersAndOwnersTakeTurns) {
  RequestPool pool({.threads = 2, .most_of_owner = 1});
  Gate gate;
  std::vector<std::shared_ptr<Recorder>> told;
  std::mutex mutex;
  std::string order;
  const auto post = [&](const std::string& owner, const RequestPool::Work& work) {
    told.push_back(std::make_shared<Recorder>());
    pool.post(
        request_of(owner), told.back(), [work, out = told.back()](ApiRequest& r) { work(r), out->send({}); }, kTold);
  };
  post("a", gate.work());
  ASSERT_TRUE(gate.enter(1));
  for (int i = 0; i < 20; ++i)
    post("a", [&](ApiRequest&) {
      const std::lock_guard lock(mutex);
      order += 'a';
    });
  post("b", [&](ApiRequest&) {
    const std::lock_guard lock(mutex);
    order += 'b';
  });
  told.back()->wait();  // though a has 21 before it
  EXPECT_EQ(order, "b");
  Gate both;
  post("b", both.work());
  ASSERT_TRUE(both.enter(1));
  for (int i = 0; i < 3; ++i)
    post("c", [&](ApiRequest&) {
      const std::lock_guard lock(mutex);
      order += 'c';
    });
  gate.promise.set_value();  // a's thread is free for both, which take turns
  for (const auto& one : {told[20], told.back()}) one->wait();
  EXPECT_LT(order.rfind('c'), 12u) << order;
  both.promise.set_value();
  for (const auto& one : told) EXPECT_EQ(one->wait().status, 200);
}

TEST(RequestPoolTest, WhoLeavesIsNotWorkedForAndItsBodyGoes) {
  RequestPool pool({.threads = 1, .most_of_owner = 1});
  const auto budget = std::make_shared<BodyBudget>(1 << 20, 100);
  Gate gate;
  const auto runs = std::make_shared<Recorder>(), waits = std::make_shared<Recorder>(), last = std::make_shared<Recorder>();
  const auto post = [&](const std::shared_ptr<Recorder>& out, const RequestPool::Work& work) {
    ApiRequest request = request_of("a");
    request.lease = budget->lease("a");
    request.lease->take(1000);
    pool.post(std::move(request), out, work, kTold);
  };
  post(runs, gate.work());
  ASSERT_TRUE(gate.enter(1));
  std::atomic<bool> worked{false};
  post(waits, [&](ApiRequest&) { worked = true; });
  EXPECT_EQ(budget->bytes(), 2000);
  waits->abandon();
  EXPECT_EQ(budget->bytes(), 1000);  // at once, while the thread is busy
  post(last, [out = last](ApiRequest&) { out->send({}); });
  runs->abandon();  // ends it, though its gate is closed
  EXPECT_EQ(last->wait().status, 200);
  EXPECT_EQ(runs->wait().status, 503);
  EXPECT_FALSE(worked);
  for (int i = 0; i < 1000 && budget->bytes() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(budget->bytes(), 0);
}

TEST(RequestPoolTest, EndsSoonWhateverItReads) {
  std::string text = "[{}";
  for (int i = 0; i < 10'000'000; ++i) text += ",{}";
  const auto out = std::make_shared<Recorder>();
  std::chrono::steady_clock::time_point began;
  {
    RequestPool pool({});
    std::promise<void> begun;
    for (int i = 0; i < 4; ++i)
      pool.post(
          request_of("a"), i == 0 ? out : std::make_shared<Recorder>(),
          [&, i](ApiRequest&) {
            if (i == 0) begun.set_value();
            read_json(text);
          },
          kTold);
    begun.get_future().wait();
    began = std::chrono::steady_clock::now();
  }
  EXPECT_LT(seconds_since(began), 2.0);  // the whole takes longer
  EXPECT_EQ(out->wait().status, 503);
}

// Megabytes of memory that this process has.
double resident_megabytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

TEST(RequestPoolTest, WhatARefusedRequestHadIsTheSystemsAgainWhenItIsTold) {
  RequestPool pool({.threads = 4, .most_of_owner = 4});
  const auto budget = std::make_shared<BodyBudget>(std::int64_t{1} << 30, 100);
  const double before = resident_megabytes();
  std::vector<std::shared_ptr<Recorder>> told;
  std::atomic<int> full{0};
  for (int i = 0; i < 4; ++i) {
    ApiRequest request = request_of("a");
    request.lease = budget->lease("a");
    told.push_back(std::make_shared<Recorder>());
    pool.post(
        std::move(request), told.back(),
        [&full](ApiRequest&) {
          ClientWork::take(32 << 20);
          std::list<std::array<char, 24>> blocks(1 << 20);  // 48 MB
          for (++full; full < 4;) std::this_thread::yield();
          fail(ErrorCode::invalid_argument, "no");
        },
        kTold);
  }
  for (const auto& one : told) EXPECT_EQ(one->wait().status, 400);
  EXPECT_LT(resident_megabytes(), before + 24);
  EXPECT_EQ(budget->bytes(), 0);
}

TEST(RequestPoolTest, RefusesWhatIsTooMuchToWait) {
  RequestPool pool({.threads = 1, .most_of_owner = 1, .most_waiting = 2});
  Gate gate;
  pool.post(request_of("a"), std::make_shared<Recorder>(), gate.work(), kTold);
  ASSERT_TRUE(gate.enter(1));
  for (int i = 0; i < 2; ++i)
    pool.post(
        request_of("b"), std::make_shared<Recorder>(), [](ApiRequest&) {}, kTold);
  EXPECT_THROW(pool.post(
                   request_of("b"), std::make_shared<Recorder>(), [](ApiRequest&) {}, kTold),
               Error);
  gate.promise.set_value();
}

TEST(BodyBudgetTest, AShareATotalAndWhatOneRequestMayTake) {
  const auto budget = std::make_shared<BodyBudget>(100 << 20, 50);
  const auto refusal = [](const auto& work) -> std::pair<int, std::string> {
    try {
      work();
      return {0, ""};
    } catch (const RequestError& e) {
      return {e.status(), e.what()};
    }
  };
  auto first = budget->lease("a"), second = budget->lease("a"), other = budget->lease("b"), third = budget->lease("c");
  EXPECT_EQ(refusal([&] { first->settle(51 << 20); }).first, 413);
  EXPECT_EQ(first->bytes(), 0);
  first->settle(30 << 20);
  const auto [status, text] = refusal([&] { second->take(21 << 20); });
  EXPECT_EQ(status, 429);
  for (const char* part : {"51.0 MB", "50.0 MB", "100.0 MB", "--body-megabytes", "--key-share"}) EXPECT_NE(text.find(part), std::string::npos) << text;
  other->settle(50 << 20);
  for (const int megabytes : {21, 8}) {  // with what is left for what is not counted
    const auto [refused, why] = refusal([&] { third->take(static_cast<std::size_t>(megabytes) << 20); });
    EXPECT_EQ(refused, 503);
    EXPECT_NE(why.find("100.0 MB (--body-megabytes) less 12.5 MB"), std::string::npos) << why;
  }
  EXPECT_EQ(refusal([] { std::make_shared<BodyBudget>(100 << 20, 100)->lease("a")->settle(90 << 20); }).first, 413);  // it never fits
  EXPECT_EQ(error_response(RequestError(ErrorCode::resource_exhausted, {}, "x", 503)).headers, (HeaderList{{"Retry-After", "1"}}));
  EXPECT_EQ(budget->bytes(), 80 << 20);
  other->settle(10 << 20);
  third->take(21 << 20);
  first.reset();
  second->take(21 << 20);
  EXPECT_EQ(budget->bytes(), 52 << 20);
  second.reset(), other.reset(), third.reset();
  EXPECT_EQ(budget->bytes(), 0);
}

TEST(RequestPoolTest, InNoLaneHasOneOwnerAllThreads) {
  RequestLanes lanes;
  for (RequestPool* lane : {&lanes.quick, &lanes.small, &lanes.large}) {
    Gate gate;
    std::vector<std::shared_ptr<Recorder>> told;
    for (int i = 0; i < 8; ++i) {
      told.push_back(std::make_shared<Recorder>());
      lane->post(
          request_of("a"), told.back(), [&gate, out = told.back()](ApiRequest& r) { gate.work()(r), out->send({}); }, kTold);
    }
    for (int i = 0; i < 5000 && gate.entered == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // all that may have begun by now
    const auto other = std::make_shared<Recorder>();
    lane->post(
        request_of("b"), other, [other](ApiRequest&) { other->send({}); }, kTold);
    EXPECT_EQ(other->wait().status, 200);
    gate.promise.set_value();
    for (const auto& one : told) one->wait();
  }
}

TEST(BodyBudgetTest, APartOutlivesItsRequest) {
  const auto budget = std::make_shared<BodyBudget>(std::int64_t{100} << 20, 50);
  auto lease = budget->lease("a");
  lease->settle(10 << 20);
  std::shared_ptr<void> part;
  {
    const ClientWork scope(nullptr, lease);
    ClientWork::take(20 << 20);
    part = ClientWork::hold(15 << 20);
  }
  EXPECT_EQ(lease->bytes(), 15 << 20);
  lease.reset();
  EXPECT_EQ(budget->bytes(), 15 << 20);
  EXPECT_THROW(budget->lease("a")->settle(40 << 20), Error);  // the part is of the owner's share
  part.reset();
  EXPECT_EQ(budget->bytes(), 0);
  EXPECT_EQ(ClientWork::hold(1), nullptr);
}

}  // namespace
}  // namespace lockstep
