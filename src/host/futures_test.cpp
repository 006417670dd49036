#include "host/futures.h"

#include <gtest/gtest.h>

#include <future>

#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace {

struct Told {
  std::promise<std::string> promise;
  std::function<void(const Outcome*)> callback() {
    return [this](const Outcome* o) { promise.set_value(!o ? "not yet" : o->failed() ? o->category + ": " + o->message : o->bytes); };
  }
  std::string get() { return promise.get_future().get(); }
};

TEST(Futures, AWaiterIsToldOnceTheResultIsThere) {
  Futures futures(std::make_shared<Deadlines>(), nullptr);
  const std::string id = futures.create("ann", "m");
  Told before, after;
  EXPECT_TRUE(futures.wait(id, "ann", 30, before.callback()));
  futures.resolve(id, {"text/plain", "done", {}, {}});
  futures.resolve(id, {"text/plain", "a second result changes nothing", {}, {}});
  EXPECT_EQ(before.get(), "done");
  EXPECT_TRUE(futures.wait(id, "ann", 30, after.callback()));  // kept after its delivery
  EXPECT_EQ(after.get(), "done");
}

TEST(Futures, WhoeverWaitsTooLongIsToldSo) {
  Futures futures(std::make_shared<Deadlines>(), nullptr);
  const std::string id = futures.create("ann", "m");
  Told told;
  EXPECT_TRUE(futures.wait(id, "ann", 0.02, told.callback()));
  EXPECT_EQ(told.get(), "not yet");
}

TEST(Futures, AnothersRequestIsAsGoodAsAbsent) {
  Futures futures(std::make_shared<Deadlines>(), nullptr);
  const std::string id = futures.create("ann", "m");
  EXPECT_FALSE(futures.wait(id, "bob", 30, [](const Outcome*) { FAIL(); }));
  EXPECT_FALSE(futures.wait("req-none", "ann", 30, [](const Outcome*) { FAIL(); }));
}

TEST(Futures, FailuresSayWhoseFaultItWas) {
  Futures futures(std::make_shared<Deadlines>(), nullptr);
  for (const auto& [code, category] :
       {std::pair{ErrorCode::invalid_argument, "user"}, {ErrorCode::numeric, "user"}, {ErrorCode::io, "server"}, {ErrorCode::internal, "server"}}) {
    const std::string id = futures.create("ann", "m");
    futures.fail(id, Error(code, "because"));
    Told told;
    futures.wait(id, "ann", 30, told.callback());
    EXPECT_EQ(told.get(), std::string(category) + ": because");
  }
  const std::string id = futures.create("ann", "m");
  futures.fail(id, std::runtime_error("an address of ours"));
  Told told;
  futures.wait(id, "ann", 30, told.callback());
  EXPECT_EQ(told.get(), "server: an internal error; the server's log says more");
}

TEST(Futures, ResultsOutliveARestartAndTheMemoryLimit) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / ("futures-" + hex64(random_bits()));
  std::string first;
  {
    Futures futures(std::make_shared<Deadlines>(), std::make_shared<TrainingStore>(folder), /*most_bytes=*/100);
    first = futures.create("ann", "m");
    futures.resolve(first, {"text/plain", std::string(90, 'x'), {}, {}});
    const std::string second = futures.create("ann", "m");
    futures.resolve(second, {"text/plain", std::string(90, 'y'), {}, {}});
    for (int i = 0; i < 1000 && futures.done(first); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(futures.done(first));  // no longer in memory
    Told told;
    EXPECT_TRUE(futures.wait(first, "ann", 30, told.callback()));
    EXPECT_EQ(told.get(), std::string(90, 'x'));
  }
  Futures futures(std::make_shared<Deadlines>(), std::make_shared<TrainingStore>(folder));
  Told told;
  EXPECT_TRUE(futures.wait(first, "ann", 30, told.callback()));
  EXPECT_EQ(told.get(), std::string(90, 'x'));
  EXPECT_FALSE(futures.wait(first, "bob", 30, [](const Outcome*) { FAIL(); }));
  std::filesystem::remove_all(folder);
}

TEST(Futures, StoppingTellsAllWhoWait) {
  Told told;
  Futures futures(std::make_shared<Deadlines>(), nullptr);
  const std::string id = futures.create("ann", "m");
  futures.wait(id, "ann", 30, told.callback());
  futures.stop();
  EXPECT_EQ(told.get(), "not yet");
}

}  // namespace
}  // namespace lockstep
