#include "service/training/training_queue.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TrainingQueue, LanesTakeTurnsAndKeepTheirOrder) {
  const auto executor = std::make_shared<Executor>();
  const auto queue = std::make_shared<TrainingQueue>(executor);
  std::string ran;
  std::promise<void> go;
  const auto gate = executor->run(WorkPriority::live, [ready = go.get_future().share()] { ready.wait(); });
  const auto steps = [&](const std::string& lane, char name, int count) {
    queue->submit(lane, [&ran, name, left = count]() mutable { return ran += name, --left > 0; });
  };
  steps("huge", 'h', 6);
  steps("huge", 'H', 1);
  steps("small", 's', 1);
  steps("small", 'S', 2);
  go.set_value();
  gate.wait();
  executor->drain();
  EXPECT_EQ(ran, "hshShShhhH");
  EXPECT_EQ(queue->waiting(), 0u);
}

TEST(TrainingQueue, WhatIsDroppedDoesNotRun) {
  const auto executor = std::make_shared<Executor>();
  const auto queue = std::make_shared<TrainingQueue>(executor);
  std::string ran;
  queue->submit("a", [&] {
    ran += 'a';
    queue->drop("a");
    return true;
  });
  queue->submit("a", [&] { return ran += 'x', false; });
  queue->submit("b", [&] { return ran += 'b', false; });
  executor->drain();
  EXPECT_EQ(ran, "ab");
}

}  // namespace
}  // namespace lockstep
