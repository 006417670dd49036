#include "observe/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {

nlohmann::json written_trace(const TraceRecording& recording) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / ("trace-" + std::to_string(::getpid()) + ".json");
  write_trace(path, recording);
  const std::string text = read_file(path, std::size_t{1} << 24);
  std::filesystem::remove(path);
  return nlohmann::json::parse(text);
}

std::vector<nlohmann::json> spans_of(const nlohmann::json& json) {
  std::vector<nlohmann::json> spans;
  for (const nlohmann::json& event : json["traceEvents"])
    if (event["ph"].get<std::string>() == "X") spans.push_back(event);
  return spans;
}

TEST(Trace, SpansAreWrittenByThreadAndInsideTheirOuterOnes) {
  begin_trace();
  {
    const TraceSpan outer("engine", "step");
    {
      TraceSpan inner("kernel", "not yet known");
      inner.rename("add");
    }
    std::thread([] { const TraceSpan other("training", "forward"); }).join();
  }
  const nlohmann::json json = written_trace(end_trace());
  EXPECT_EQ(json["otherData"]["dropped_events"].get<int>(), 0);
  std::map<std::string, nlohmann::json> spans;
  for (const nlohmann::json& event : spans_of(json)) spans[event["name"].get<std::string>()] = event;
  ASSERT_EQ(spans.size(), 3u);
  const nlohmann::json &outer = spans.at("step"), &inner = spans.at("add"), &other = spans.at("forward");
  EXPECT_EQ(inner["cat"].get<std::string>(), "kernel");
  EXPECT_EQ(outer["tid"].get<int>(), inner["tid"].get<int>());
  EXPECT_NE(outer["tid"].get<int>(), other["tid"].get<int>());
  EXPECT_EQ(outer["pid"].get<int>(), other["pid"].get<int>());
  // Thousandths of microseconds, as whole numbers: the file has all digits.
  const auto nanoseconds = [](const nlohmann::json& microseconds) { return std::llround(microseconds.get<double>() * 1000); };
  EXPECT_LE(nanoseconds(outer["ts"]), nanoseconds(inner["ts"]));
  EXPECT_LE(nanoseconds(inner["ts"]) + nanoseconds(inner["dur"]), nanoseconds(outer["ts"]) + nanoseconds(outer["dur"]));
}

TEST(Trace, IsBoundedAndSaysWhatItDropped) {
  begin_trace(4);
  for (int i = 0; i < 10; ++i) {
    const TraceSpan span("test", "one of ten");
  }
  const TraceRecording recording = end_trace();
  EXPECT_EQ(recording.events.size(), 4u);
  EXPECT_EQ(recording.dropped, 6);
  EXPECT_EQ(written_trace(recording)["otherData"]["dropped_events"].get<int>(), 6);
}

TEST(Trace, WhatBeganBeforeItIsNotInIt) {
  { const TraceSpan span("test", "off"); }
  {
    const TraceSpan span("test", "begun before");
    begin_trace();
    EXPECT_THROW(begin_trace(), Error);
  }
  EXPECT_EQ(end_trace().events.size(), 0u);
  const TraceClock::time_point before = TraceClock::now();
  add_trace_event("test", "without a recording", before, TraceClock::now());
  begin_trace();
  add_trace_event("test", "begun in an earlier one", before, TraceClock::now());
  EXPECT_EQ(end_trace().events.size(), 0u);
}

TEST(Trace, OuterSpansComeFirst) {
  const TraceRecording recording{{{"a", "inner", 10, 5, 7}, {"a", "outer", 10, 90, 7}, {"a", "elsewhere", 5, 1, 8}, {"a", "first", 1234567, 1, 7}}, 0};
  const nlohmann::json json = written_trace(recording);
  std::vector<std::string> names;
  for (const nlohmann::json& event : spans_of(json)) names.push_back(event["name"].get<std::string>());
  EXPECT_EQ(names, (std::vector<std::string>{"outer", "inner", "first", "elsewhere"}));
  EXPECT_EQ(spans_of(json)[2]["ts"].get<double>(), 1234.567);
}

}  // namespace
}  // namespace lockstep
