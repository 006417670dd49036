// Records what each thread does when: spans of work, nested, written as Chrome's trace events, which Perfetto opens (https://ui.perfetto.dev). One
// recording at a time in a process. Any thread may have spans, also across a recording's begin and end. Without a recording a span costs one branch.
// Names are literals, so nothing of a request or of a text is recorded.
//   begin_trace(); { const TraceSpan span("engine", "step"); work(); } write_trace("trace.json", end_trace());
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep {

using TraceClock = std::chrono::steady_clock;

struct TraceEvent {
  const char *category = nullptr, *name = nullptr;
  std::int64_t begin = 0, length = 0;  // nanoseconds since the recording began
  std::int32_t thread = 0;             // the system's number
};
struct TraceRecording {
  std::vector<TraceEvent> events;  // as they ended
  std::int64_t dropped = 0;        // that ended once the recording was full
};

inline constexpr std::int64_t kMostTraceEvents = 500'000;

// Error internal while there is one.
void begin_trace(std::int64_t most_events = kMostTraceEvents);
TraceRecording end_trace();

// True while there is a recording.
inline std::atomic<bool> tracing{false};
// Adds a span that has ended. Does nothing without a recording, or for a span that began before it.
void add_trace_event(const char* category, const char* name, TraceClock::time_point begin, TraceClock::time_point end);

// From here to the end of its scope.
class TraceSpan {
 public:
  TraceSpan(const char* category, const char* name) : category_(category), name_(name), on_(tracing.load(std::memory_order_relaxed)) {
    if (on_) begin_ = TraceClock::now();
  }
  ~TraceSpan() {
    if (on_) add_trace_event(category_, name_, begin_, TraceClock::now());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;
  // For a name that is known only during the span.
  void rename(const char* name) { name_ = name; }

 private:
  const char *category_, *name_;
  bool on_;
  TraceClock::time_point begin_;
};

// {"traceEvents": [...]}, by thread and time, outer spans first. Errors: those of AtomicFile.
void write_trace(const std::filesystem::path& path, const TraceRecording& recording);

}  // namespace lockstep
