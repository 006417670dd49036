#include "observe/progress.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace lockstep {
namespace {

struct Recorder {
  double now = 100;
  std::vector<std::string> lines;
  Progress::Options options(bool terminal, std::int64_t total) {
    return {.label = "train",
            .total = total,
            .unit = "tokens",
            .write = [this](const std::string& text) { lines.push_back(text); },
            .terminal = terminal ? 1 : 0,
            .clock = [this] { return now; }};
  }
};

TEST(Progress, PlainLinesComeEveryFewSeconds) {
  Recorder recorder;
  {
    Progress progress(recorder.options(false, 100));
    for (int step = 0; step < 10; ++step) {
      recorder.now += 1;
      progress.advance(1, 50);
    }
    progress.note("loss 0.5");
  }
  EXPECT_EQ(recorder.lines, (std::vector<std::string>{"train  5/100  50.0 tokens/s  1:35 left\n", "train  10/100  50.0 tokens/s  1:30 left\n",
                                                      "train  10/100  50.0 tokens/s  in 10 s  loss 0.5\n"}));
}

TEST(Progress, TerminalLineIsRedrawnAtMostTenTimesASecond) {
  Recorder recorder;
  Progress progress(recorder.options(true, 1000));
  for (int step = 0; step < 512; ++step) {
    recorder.now += 1.0 / 512;  // exact in binary: redrawn every 52 steps
    progress.advance(1, 10);
  }
  EXPECT_EQ(recorder.lines.size(), 9u);
  EXPECT_EQ(recorder.lines[4], "\r\033[Ktrain  [=====>              ]  260/1000  5120 tokens/s  1 s left");
  EXPECT_EQ(recorder.lines[4].find('\n'), std::string::npos);
  progress.finish();
  EXPECT_EQ(recorder.lines.back().back(), '\n');
  const std::size_t count = recorder.lines.size();
  progress.finish();
  recorder.now += 60;
  progress.advance();
  EXPECT_EQ(recorder.lines.size(), count);
}

TEST(Progress, EarlierStepsAreNoPartOfRateAndTimeLeft) {
  Recorder recorder;
  auto options = recorder.options(false, 100);
  options.already_done = 80;
  Progress progress(options);
  recorder.now += 10;
  progress.advance(5, 1000);
  EXPECT_EQ(recorder.lines, std::vector<std::string>{"train  85/100  100 tokens/s  30 s left\n"});
}

TEST(Progress, UnknownTotalAndQuiet) {
  Recorder recorder;
  {
    Progress progress(recorder.options(false, 0));
    recorder.now += 6;
    progress.advance(3, 12);
  }
  EXPECT_EQ(recorder.lines, (std::vector<std::string>{"train  3  2.00 tokens/s\n", "train  3  2.00 tokens/s  in 6 s\n"}));
  recorder.lines.clear();
  {
    auto options = recorder.options(true, 10);
    options.quiet = true;
    Progress progress(options);
    recorder.now += 6;
    progress.advance();
  }
  EXPECT_TRUE(recorder.lines.empty());
}

TEST(Progress, ManyThreads) {
  Recorder recorder;
  {
    Progress progress(recorder.options(false, 4000));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 1000; ++i) progress.advance(1, 2);
      });
    for (std::thread& thread : threads) thread.join();
    recorder.now += 1;
  }
  EXPECT_EQ(recorder.lines, std::vector<std::string>{"train  4000/4000  8000 tokens/s  in 1 s\n"});
}

TEST(Progress, Formats) {
  EXPECT_EQ(format_duration(0.2), "0 s");
  EXPECT_EQ(format_duration(59.6), "1:00");
  EXPECT_EQ(format_duration(3700), "1:01:40");
  EXPECT_EQ(format_duration(-1), "0 s");
  EXPECT_EQ(format_rate(0.1234), "0.123");
  EXPECT_EQ(format_rate(4.56), "4.56");
  EXPECT_EQ(format_rate(78.94), "78.9");
  EXPECT_EQ(format_rate(123456), "123456");
  EXPECT_EQ(format_rate(1234567), "1.23 M");
}

}  // namespace
}  // namespace lockstep
