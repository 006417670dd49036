#include "host/training_queue.h"

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

// A step of so many tokens, that says with whom it ran.
struct Talker : TrainingQueue::Step {
  Talker(std::string& told, char name, const void* pass, std::int64_t tokens, int count = 1) : told(told), name(name), pass(pass), tokens(tokens), left(count) {}
  bool run() override {
    told += {name, ' '};
    return --left > 0;
  }
  Offer offer() override { return {pass, tokens}; }
  std::vector<bool> run_with(const std::vector<Step*>& others) override {
    std::vector<bool> again{--left > 0};
    told += name;
    for (Step* other : others) {
      auto& one = static_cast<Talker&>(*other);
      told += one.name;
      again.push_back(--one.left > 0);
    }
    told += ' ';
    return again;
  }
  std::string& told;
  const char name;
  const void* const pass;
  const std::int64_t tokens;
  int left;
};

TEST(TrainingQueue, ATurnThatIsNotFullTakesOthersAlong) {
  const int one = 0, two = 0;
  const auto told_by = [&](std::int64_t tokens_a_turn) {
    const auto executor = std::make_shared<Executor>();
    const auto queue = std::make_shared<TrainingQueue>(executor, tokens_a_turn);
    std::string told;
    std::promise<void> go;
    const auto gate = executor->run(WorkPriority::live, [ready = go.get_future().share()] { ready.wait(); });
    const auto add = [&](char name, const void* pass, std::int64_t tokens, int count) { queue->submit({name}, std::make_shared<Talker>(told, name, pass, tokens, count)); };
    add('h', &one, 10, 4);  // full turns
    add('a', &one, 4, 2);
    add('x', &two, 1, 1);   // of another pass
    add('b', &one, 5, 1);
    add('n', nullptr, 1, 1);
    add('c', &one, 2, 2);   // no room beside a and b
    add('d', &one, 1, 1);
    go.set_value();
    gate.wait();
    executor->drain();
    EXPECT_EQ(queue->waiting(), 0u);
    return told;
  };
  EXPECT_EQ(told_by(10), "h abd x n ca h c h h ");
  EXPECT_EQ(told_by(0), "h a x b n c d h a c h h ");
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
