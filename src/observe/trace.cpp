#include "observe/trace.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {

namespace {
struct Recorder {
  std::mutex mutex;
  TraceRecording recording;
  std::int64_t most = 0;
  TraceClock::time_point began;
};
Recorder& recorder() {
  static Recorder one;
  return one;
}

std::int64_t nanoseconds(TraceClock::duration duration) { return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count(); }

// Microseconds, as the format has them, with all digits of a nanosecond: what lies inside another span stays there.
std::string microseconds(std::int64_t nanoseconds) { return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000); }
}  // namespace

void begin_trace(std::int64_t most_events) {
  Recorder& one = recorder();
  const std::lock_guard lock(one.mutex);
  if (tracing.load(std::memory_order_relaxed)) fail(ErrorCode::internal, "a trace is being recorded already");
  one.recording = {};
  one.most = most_events;
  one.began = TraceClock::now();
  tracing.store(true, std::memory_order_relaxed);
}

TraceRecording end_trace() {
  Recorder& one = recorder();
  const std::lock_guard lock(one.mutex);
  tracing.store(false, std::memory_order_relaxed);
  return std::exchange(one.recording, {});
}

void add_trace_event(const char* category, const char* name, TraceClock::time_point begin, TraceClock::time_point end) {
  thread_local const auto thread = static_cast<std::int32_t>(gettid());
  Recorder& one = recorder();
  const std::lock_guard lock(one.mutex);
  if (!tracing.load(std::memory_order_relaxed) || begin < one.began) return;
  if (static_cast<std::int64_t>(one.recording.events.size()) >= one.most) {
    ++one.recording.dropped;
    return;
  }
  one.recording.events.push_back({category, name, nanoseconds(begin - one.began), nanoseconds(end - begin), thread});
}

void write_trace(const std::filesystem::path& path, const TraceRecording& recording) {
  std::vector<TraceEvent> events = recording.events;
  // Of spans that begin together the longer one is the outer one.
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return std::tuple(a.thread, a.begin, -a.length) < std::tuple(b.thread, b.begin, -b.length);
  });
  const int process = static_cast<int>(getpid());
  AtomicFile file(path);
  std::string text = fmt::format(R"({{"displayTimeUnit":"ms","otherData":{{"dropped_events":{}}},"traceEvents":[)", recording.dropped);
  fmt::format_to(std::back_inserter(text), R"({{"ph":"M","name":"process_name","pid":{},"tid":{},"args":{{"name":"lockstep"}}}})", process, process);
  constexpr std::size_t kAtOnce = std::size_t{1} << 20;
  for (const TraceEvent& event : events) {
    fmt::format_to(std::back_inserter(text),
                   ",\n"
                   R"({{"ph":"X","cat":"{}","name":"{}","ts":{},"dur":{},"pid":{},"tid":{}}})",
                   event.category, event.name, microseconds(event.begin), microseconds(event.length), process, event.thread);
    if (text.size() < kAtOnce) continue;
    file.write(text);
    text.clear();
  }
  text += "]}\n";
  file.write(text);
  file.commit();
}

}  // namespace lockstep
