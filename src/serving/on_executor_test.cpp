#include "serving/on_executor.h"

#include <gtest/gtest.h>

#include <thread>
#include <type_traits>

namespace lockstep {
namespace {

static_assert(!std::is_copy_constructible_v<OnExecutor> && !std::is_default_constructible_v<OnExecutor>);

TEST(OnExecutor, IsMadeByAStepOfThatExecutorAlone) {
  Executor executor, other;
  OfExecutor<int> value;
  EXPECT_EQ(run_on(executor, WorkClass::training, [&](const OnExecutor& on) { return value.at(on) += 3; }).get(), 3);
  const auto code = [&] {
    try {
      const OnExecutor on(executor);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::io;
  };
  EXPECT_EQ(code(), ErrorCode::internal);
  EXPECT_EQ(other.run(WorkClass::training, code).get(), ErrorCode::internal);
  EXPECT_EQ(executor.run(WorkClass::training, code).get(), ErrorCode::io);
}

TEST(OnExecutor, IsMadeByWhoStoppedItAlone) {
  Executor executor;
  const auto made = [&] {
    try {
      const OnExecutor on(executor);
      return true;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::internal);
      return false;
    }
  };
  EXPECT_FALSE(made());
  executor.stop();
  EXPECT_TRUE(made());
  bool elsewhere = true;
  std::thread([&] { elsewhere = made(); }).join();
  EXPECT_FALSE(elsewhere);
}

TEST(OnExecutor, ReleasesInAStepOrWhereTheExecutorHasStopped) {
  Executor executor;
  std::thread::id where;
  const auto release = [&] {
    release_on(executor, WorkClass::training, [&](const OnExecutor&) { where = std::this_thread::get_id(); });
    return where == std::this_thread::get_id();
  };
  EXPECT_FALSE(release());
  executor.stop();
  EXPECT_TRUE(release());
  bool elsewhere = false;
  std::thread([&] { elsewhere = release(); }).join();
  EXPECT_TRUE(elsewhere);
}

}  // namespace
}  // namespace lockstep
