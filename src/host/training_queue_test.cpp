#include "host/training_queue.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep {
namespace {

TEST(TrainingQueue, LanesTakeTurnsAndKeepTheirOrder) {
  const auto executor = std::make_shared<Executor>();
  const auto queue = std::make_shared<TrainingQueue>(executor);
  std::string ran;
  std::promise<void> go;
  const auto gate = executor->run(WorkClass::live, [ready = go.get_future().share()] { ready.wait(); });
  const auto steps = [&](const std::string& lane, char name, int count) {
    queue->submit(lane, {}, [&ran, name, left = count](const OnExecutor&) mutable { return ran += name, --left > 0; });
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
  Talker(std::string& told, char name, const void* pass, std::int64_t tokens, int count = 1)
      : told(told), name(name), pass(pass), tokens(tokens), left(count) {}
  bool run(const OnExecutor&) override {
    told += {name, ' '};
    return --left > 0;
  }
  Offer offer(const OnExecutor&) override { return {pass, tokens}; }
  std::vector<bool> run_with(const OnExecutor&, const std::vector<Step*>& others) override {
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
    const auto gate = executor->run(WorkClass::live, [ready = go.get_future().share()] { ready.wait(); });
    const auto add = [&](char name, const void* pass, std::int64_t tokens, int count) {
      queue->submit(std::string{name}, {}, std::make_shared<Talker>(told, name, pass, tokens, count));
    };
    add('h', &one, 10, 4);  // full turns
    add('a', &one, 4, 2);
    add('x', &two, 1, 1);  // of another pass
    add('b', &one, 5, 1);
    add('n', nullptr, 1, 1);
    add('c', &one, 2, 2);  // no room beside a and b
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

// Three models of one key have together what another key's one has.
TEST(TrainingQueue, OwnersTakeTurnsWhateverTheirNumbersOfLanes) {
  const auto executor = std::make_shared<Executor>();
  const auto queue = std::make_shared<TrainingQueue>(executor);
  double of_ann = 0, of_bob = 0, longest = 0;
  std::promise<void> go;
  const auto gate = executor->run(WorkClass::training, [ready = go.get_future().share()] { ready.wait(); });
  const auto steps = [&](const std::string& lane, const std::string& owner, double& had) {
    queue->submit(lane, owner, [&](const OnExecutor&) {
      const auto began = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
      had += seconds, longest = std::max(longest, seconds);
      return of_ann + of_bob < 0.3;
    });
  };
  for (const char* lane : {"1", "2", "3"}) steps(lane, "ann", of_ann);
  steps("4", "bob", of_bob);
  go.set_value();
  executor->drain();
  // A step that the machine held up for long is owed to the other, which has not had it yet.
  EXPECT_NEAR(of_bob / (of_ann + of_bob), 0.5, 0.15 + longest / (of_ann + of_bob));
  EXPECT_EQ(queue->waiting(), 0u);
}

// Who runs along in another's turn pays for its tokens.
TEST(TrainingQueue, ASharedPassIsPaidByTokens) {
  const int pass = 0;
  const auto executor = std::make_shared<Executor>();
  executor->set_keys({{"ann", 1}, {"bob", 1}});
  const auto queue = std::make_shared<TrainingQueue>(executor, 10);
  std::string told;
  std::promise<void> go;
  const auto gate = executor->run(WorkClass::training, [ready = go.get_future().share()] { ready.wait(); });
  queue->submit("a", "ann", std::make_shared<Talker>(told, 'a', &pass, 6));
  queue->submit("b", "bob", std::make_shared<Talker>(told, 'b', &pass, 2));
  go.set_value();
  executor->drain();
  EXPECT_EQ(told, "ab ");
  PrometheusText text;
  executor->append_metrics(text);
  const std::string shown = text.take();
  const auto seconds_of = [&](const std::string& key) {
    const std::string line = "lockstep_device_seconds_total{class=\"training\",key=\"" + key + "\"} ";
    return std::stod(shown.substr(shown.find(line) + line.size()));
  };
  // Beside the pass, bob's item has found nothing to do: a piece of the least cost.
  EXPECT_GT(seconds_of("ann"), 0);
  EXPECT_GT(seconds_of("bob"), seconds_of("ann") / 3 - 1e-9);
}

TEST(TrainingQueue, WhatIsDroppedDoesNotRun) {
  const auto executor = std::make_shared<Executor>();
  const auto queue = std::make_shared<TrainingQueue>(executor);
  std::string ran;
  queue->submit("a", {}, [&](const OnExecutor&) {
    ran += 'a';
    queue->drop("a");
    return true;
  });
  queue->submit("a", {}, [&](const OnExecutor&) { return ran += 'x', false; });
  queue->submit("b", {}, [&](const OnExecutor&) { return ran += 'b', false; });
  executor->drain();
  EXPECT_EQ(ran, "ab");
}

}  // namespace
}  // namespace lockstep
