// Numbers of a model's operations: repeated with the same operation, with another, and missing.
#include <gtest/gtest.h>

#include <thread>

#include "host/training_test_tools.h"

namespace lockstep {
namespace {

TEST(SequenceNumbers, ARepeatedNumberIsTheSameRequestOrRefused) {
  TrainingBench bench;
  const std::string id = bench.model(bench.session(), 0, 2), first = bench.batch(id, 1, training_batch(1, 2));
  EXPECT_EQ(bench.batch(id, 1, training_batch(1, 2)), first);
  const auto refused = [&](const std::string& words) {
    return fmt::format("seq_id 1 of model '{}' was {}; each operation has a number of its own", id, words);
  };
  EXPECT_EQ(error_text([&] { bench.batch(id, 1, training_batch(2, 2)); }), refused("forward_backward with other content before"));
  EXPECT_EQ(error_text([&] { bench.step(id, 1); }), refused("forward_backward before, and is optim_step now"));
  EXPECT_FALSE(bench.result(first).failed());
  // Nothing of what was refused has happened: the next number is free, and the step has the first batch's gradient alone.
  EXPECT_FALSE(bench.result(bench.step(id, 2)).failed());
}

// Whether or not its session is heard from: packages send heartbeats, and a client of its own need not.
TEST(SequenceNumbers, AMissingNumberIsNamedAndThenSkipped) {
  TrainingBench bench({.gap_seconds = 1});
  const std::string id = bench.model(bench.session(), 0, 2);
  EXPECT_FALSE(bench.result(bench.batch(id, 1, training_batch(1, 2))).failed());
  const std::string step = bench.step(id, 3);
  EXPECT_EQ(bench.service->lanes().missing_before("me", step),
            fmt::format("seq_id 3 of model '{}' waits for seq_id 2, which has not come; it counts as skipped 1 seconds after it was missed", id));
  EXPECT_EQ(bench.service->lanes().missing_before("you", step), "");
  EXPECT_FALSE(bench.service->futures().done(step));  // too early
  EXPECT_FALSE(bench.result(step).failed());
  EXPECT_EQ(bench.service->lanes().missing_before("me", step), "");
  const Outcome late = bench.result(bench.batch(id, 2, training_batch(2, 2)));
  EXPECT_TRUE(late.failed());
  EXPECT_EQ(late.message, fmt::format("seq_id 2 of model '{}' was used before, or was skipped since it did not come; 4 is the first that is free", id));
}

TEST(SequenceNumbers, AMissingNumberIsSkippedWhateverComesMeanwhile) {
  TrainingBench bench({.gap_seconds = 0.4});
  const std::string id = bench.model(bench.session(), 0, 2), second = bench.batch(id, 2, training_batch(1, 2));
  for (std::int64_t number = 3; number < 30; ++number) {  // for three seconds
    if (bench.service->lanes().missing_before("me", second).empty()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    bench.batch(id, number, training_batch(1, 2));
    EXPECT_LT(number, 20);
  }
  EXPECT_FALSE(bench.result(second).failed());
  // A second gap is one of its own.
  EXPECT_FALSE(bench.result(bench.step(id, 40)).failed());
}

}  // namespace
}  // namespace lockstep
