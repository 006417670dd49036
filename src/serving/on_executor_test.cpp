#include "serving/on_executor.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep
