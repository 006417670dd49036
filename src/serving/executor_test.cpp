#include "serving/executor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "base/checked_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/seconds.h"

namespace lockstep {
namespace {

// Holds the executor's thread until release(), so that a test can fill the queues.
struct Gate {
  std::promise<void> open;
  explicit Gate(Executor& executor) {
    std::promise<void> entered;
    executor.submit(WorkClass::training, [&entered, wait = open.get_future().share()] {
      entered.set_value();
      wait.wait();
      return false;
    });
    entered.get_future().wait();
  }
  void release() { open.set_value(); }
};

TEST(Executor, LiveGoesFirstAndTrainingThatHadTheDeviceLast) {
  Executor executor;
  std::string order;
  Gate gate(executor);
  executor.submit(WorkClass::training, [&] { return order += 't', false; });
  executor.submit(WorkClass::rollouts, [&] { return order += 'r', false; });
  executor.submit(WorkClass::live, [&] { return order += 'l', false; });
  gate.release();
  executor.drain();
  EXPECT_EQ(order, "lrt");
}

TEST(Executor, AnItemKeepsItsTurnWithinItsAccount) {
  Executor executor;
  std::string order;
  Gate gate(executor);
  int left = 3;
  executor.submit(WorkClass::rollouts, [&] { return order += 'a', --left > 0; });
  executor.submit(WorkClass::rollouts, [&] { return order += 'b', false; });
  gate.release();
  executor.drain();
  EXPECT_EQ(order, "aaab");
}

TEST(Executor, LiveTrafficGoesBetweenTheStepsOfTraining) {
  Executor executor;
  std::string order;
  Gate gate(executor);
  int steps = 0;
  executor.submit(WorkClass::training, [&] {
    order += 't';
    if (++steps == 2) executor.submit(WorkClass::live, [&] { return order += 'l', false; });
    return steps < 4;
  });
  gate.release();
  executor.drain();
  EXPECT_EQ(order, "ttltt");
}

TEST(Executor, RunGivesResultsAndExceptions) {
  Executor executor;
  EXPECT_EQ(executor.run(WorkClass::training, [] { return 42; }).get(), 42);
  auto failing = executor.run(WorkClass::live, []() -> int { fail(ErrorCode::numeric, "no"); });
  EXPECT_THROW(failing.get(), Error);
  EXPECT_TRUE(executor.run(WorkClass::live, [&] { return executor.inside(); }).get());
  EXPECT_FALSE(executor.inside());
}

TEST(Executor, AThrowingStepIsDroppedAndOthersGoOn) {
  Executor executor;
  std::atomic<int> calls = 0;
  executor.submit(WorkClass::live, [&]() -> bool {
    ++calls;
    throw std::runtime_error("broken on purpose");
  });
  EXPECT_EQ(executor.run(WorkClass::training, [] { return 7; }).get(), 7);
  executor.drain();
  EXPECT_EQ(calls, 1);
}

TEST(Executor, StopDropsWhatWaitsAndRefusesMore) {
  Executor executor;
  std::atomic<int> steps = 0;
  std::future<int> never;
  {
    std::promise<void> started;
    executor.submit(WorkClass::live, [&, told = false]() mutable {
      ++steps;
      if (!told) started.set_value();
      told = true;
      return true;
    });
    never = executor.run(WorkClass::live, [] { return 1; });
    started.get_future().wait();
  }
  executor.stop();
  executor.stop();
  const int after = steps;
  EXPECT_GT(after, 0);
  EXPECT_THROW(never.get(), std::future_error);
  EXPECT_THROW(executor.submit(WorkClass::live, [] { return false; }), Error);
  EXPECT_EQ(steps, after);
  executor.drain();
}

// By the seconds that were measured, whatever else the machine does.
TEST(Executor, ClassesAndKeysHaveTheirShares) {
  Executor executor(ClassShares{{50, 40, 10}});
  executor.set_keys({{"ann", 3}, {"bob", 1}});
  std::map<std::string, double> had;
  double all = 0, longest = 0;
  Gate gate(executor);
  const auto work = [&](WorkClass work, const std::string& key) {
    executor.submit(executor.account(work, key), [&, name = std::string(work_class_name(work)) + " " + key] {
      const auto began = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const double seconds = seconds_since(began);
      had[name] += seconds;
      longest = std::max(longest, seconds);
      return (all += seconds) < 0.3;
    });
  };
  work(WorkClass::rollouts, "ann");
  work(WorkClass::rollouts, "bob");
  work(WorkClass::rollouts, "bob");  // a second item of a key is no second share
  work(WorkClass::training, "cid");
  gate.release();
  executor.drain();
  const double off = 0.1 + longest / all;  // a piece that the machine held up for long is owed to the others, which have not had it yet
  EXPECT_NEAR(had["rollouts ann"] / all, 0.6, off);
  EXPECT_NEAR(had["rollouts bob"] / all, 0.2, off);
  EXPECT_NEAR(had["training cid"] / all, 0.2, off);
}

TEST(Executor, WhatAPieceTellsIsChargedAndShown) {
  Executor executor;
  executor.set_keys({{"ann", 1}, {"bob", 1}});
  executor
      .run(executor.account(WorkClass::live, "ann"),
           [&] {
             std::this_thread::sleep_for(std::chrono::milliseconds(20));
             executor.name_piece("forward", {{executor.account(WorkClass::live, "ann"), 3}, {executor.account(WorkClass::rollouts, "bob"), 1}});
           })
      .get();
  executor.run(WorkClass::training, [] {}).get();
  executor.drain();
  PrometheusText text;
  executor.append_metrics(text);
  const std::string shown = text.take();
  const auto value = [&](const std::string& line) {
    const std::size_t at = shown.find(line);
    EXPECT_NE(at, std::string::npos) << shown;
    return at == std::string::npos ? 0 : std::stod(shown.substr(at + line.size()));
  };
  const double of_ann = value("lockstep_device_seconds_total{class=\"live\",key=\"ann\"} ");
  EXPECT_GE(of_ann, 0.014);
  EXPECT_NEAR(value("lockstep_device_seconds_total{class=\"rollouts\",key=\"bob\"} ") * 3, of_ann, 1e-6);
  EXPECT_GT(value("lockstep_device_seconds_total{class=\"training\",key=\"(server)\"} "), 0);
  EXPECT_GE(value("lockstep_device_longest_piece_seconds{kind=\"forward\"} "), 0.02);
  EXPECT_EQ(value("lockstep_device_share_percent{class=\"live\"} "), 60);
}

// Live steps run inside a training step where it pauses, on its thread and for their own account; rollouts wait for its end.
TEST(Executor, TrainingGivesWayToLiveStepsBetweenItsKernels) {
  Executor executor;
  std::string order;
  const auto ann = executor.account(WorkClass::live, "ann");
  executor.set_keys({{"ann", 1}});
  EXPECT_EQ(executor.longest_kernel(), 0);
  const auto began = std::chrono::steady_clock::now();
  const auto training = executor.run(WorkClass::training, [&] {
    order += '(';
    executor.pause();  // nobody waits
    int left = 2;
    executor.submit(WorkClass::rollouts, [&] { return order += 'r', false; });
    executor.submit(ann, [&order, &executor, left]() mutable {
      executor.pause();  // nothing runs inside a live step
      order += 'l';
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return --left > 0;
    });
    executor.submit(WorkClass::live, [&] {
      throw Error(ErrorCode::internal, "dropped");
      return false;
    });
    EXPECT_GT(executor.longest_kernel(), 0);
    executor.pause();
    order += ')';
  });
  training.wait();
  executor.drain();
  const double whole = seconds_since(began);
  EXPECT_EQ(order, "(ll)r");
  executor.pause();  // no step of ours
  PrometheusText text;
  executor.append_metrics(text);
  const std::string shown = text.take();
  const auto seconds = [&shown](const std::string& work, const std::string& key) {
    const std::string name = "lockstep_device_seconds_total{class=\"" + work + "\",key=\"" + key + "\"} ";
    const std::size_t at = shown.find(name);
    return at == std::string::npos ? -1.0 : std::stod(shown.substr(at + name.size()));
  };
  EXPECT_GE(seconds("live", "ann"), 0.04);
  EXPECT_GE(seconds("training", "(server)"), 0);
  EXPECT_LE(seconds("training", "(server)"), whole - 0.04);  // what ran inside is not its own
}

// A long piece of training pays as it goes: live work has its share inside of it, and waits for a little of it at a time.
TEST(Executor, SharesHoldInsideALongPiece) {
  Executor executor;
  double live = 0, training = 0, longest = 0;
  bool ended = false;
  const auto slept = [](int milliseconds) {
    const auto began = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return seconds_since(began);
  };
  for (int i = 0; i < 20; ++i) executor.run(WorkClass::live, [&] { slept(5); }).get();  // what goes first is used up
  executor.submit(WorkClass::live, [&] {
    const double seconds = slept(5);
    live += training > 0 && !ended ? seconds : 0;
    longest = std::max(longest, seconds);
    return !ended;
  });
  executor.submit(WorkClass::training, [&] {
    while (training < 0.25) {
      const double seconds = slept(1);
      training += seconds;
      longest = std::max(longest, seconds);
      executor.pause();
    }
    ended = true;
    return false;
  });
  executor.drain();
  const double all = live + training;
  EXPECT_NEAR(live / all, 0.75, 0.06 + 2 * longest / all);  // of 60 and 20
}

// A training step that writes and reads files, which a live step comes into: it runs before the file is done.
TEST(Executor, TrainingGivesWayWhileItWritesAndReadsFiles) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / fmt::format("lockstep-give-way-{}", getpid());
  const std::vector<char> block(std::size_t{3} << 20, 'x');
  std::vector<char> back(block.size());
  const std::pair<const char*, std::function<void()>> works[] = {
      {"a checked file is written",
       [&] {
         CheckedWriter file(path);
         file.write(block.data(), block.size());
         file.commit();
       }},
      {"it is read",
       [&] {
         CheckedReader file(path);
         file.read(back.data(), back.size());
         file.finish();
       }},
      {"an atomic file is written",
       [&] {
         AtomicFile file(path);
         file.write(block.data(), block.size());
         file.commit();
       }},
      {"a path is synced", [&] { sync_path(path); }},
  };
  for (const auto& [name, work] : works) {
    SCOPED_TRACE(name);
    Executor executor;
    std::string order;
    std::promise<void> entered, submitted;
    executor.submit(WorkClass::training, [&] {
      entered.set_value();
      submitted.get_future().wait();
      work();
      return order += 't', false;
    });
    entered.get_future().wait();
    executor.submit(WorkClass::live, [&] { return order += 'l', false; });
    executor.submit(WorkClass::training, [&] { return order += 'n', false; });
    submitted.set_value();
    executor.drain();
    EXPECT_EQ(order, "ltn");
  }
  EXPECT_EQ(back, block);
  std::filesystem::remove(path);
}

// How long live work may have to wait is the longest part in which a piece does not give way, not the piece.
TEST(Executor, TheLongestStretchIsBetweenTwoMomentsToGiveWay) {
  Executor executor;
  executor
      .run(WorkClass::training,
           [&] {
             executor.name_piece("divided");
             for (int i = 0; i < 20; ++i) {  // so many that no moment without a processor is most of them
               std::this_thread::sleep_for(std::chrono::milliseconds(20));
               executor.pause();
             }
           })
      .get();
  executor.drain();
  const std::vector<PieceKind> kinds = executor.state().kinds;
  ASSERT_EQ(kinds.size(), 1u);
  EXPECT_EQ(kinds[0].name, "divided");
  EXPECT_GE(kinds[0].longest, 0.4);
  EXPECT_GE(kinds[0].longest_stretch, 0.02);
  EXPECT_LT(kinds[0].longest_stretch, 0.6 * kinds[0].longest);
}

TEST(Executor, WhoHadLittleOfTheDeviceIsToldWhy) {
  const auto told = [](bool company) {
    Executor executor;
    std::atomic<bool> end{false};
    const Executor::Account ann = executor.account(WorkClass::training, "ann");
    const auto work = [&end] { return std::this_thread::sleep_for(std::chrono::milliseconds(5)), !end.load(); };
    const Executor::Use before = executor.use(*ann);
    executor.submit(ann, work);
    if (company) {
      executor.submit(WorkClass::live, work);
      executor.submit(executor.account(WorkClass::training, "bob"), work);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    const std::string why = executor.why_waiting(*ann, before);
    const std::vector<FairShares::Line> waiting = executor.state().waiting;
    EXPECT_EQ(waiting.size(), company ? 2u : 1u);  // ann and bob have no names
    for (const FairShares::Line& line : waiting) EXPECT_EQ(line.why.empty(), !company);
    end = true;
    executor.drain();
    EXPECT_EQ(executor.why_waiting(*ann, before), "");  // it has no work any more
    return why;
  };
  EXPECT_EQ(told(false), "");
  const std::string why = told(true);
  EXPECT_TRUE(why.starts_with("this key's training had ")) << why;
  EXPECT_TRUE(why.ends_with(": training has 20 of 80 shares beside live, and 1 other key in training has work (--shares)")) << why;
}

TEST(Executor, ManyThreadsSubmit) {
  Executor executor;
  int count = 0;  // the executor's thread alone
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) executor.submit(static_cast<WorkClass>(i % kWorkClasses), [&] { return ++count, false; });
    });
  for (std::thread& thread : threads) thread.join();
  executor.drain();
  EXPECT_EQ(executor.run(WorkClass::live, [&] { return count; }).get(), 2000);
}

}  // namespace
}  // namespace lockstep
