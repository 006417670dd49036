#include "benchmark/timing.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/signals.h"

namespace lockstep {

Timing time_repeated(double seconds, const std::function<void()>& work) {
  constexpr std::size_t kLeastRuns = 3, kMostRuns = 1'000'000;
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  work();
  std::vector<double> times;
  const auto begin = Clock::now();
  while (times.size() < kLeastRuns || (since(begin) < seconds && times.size() < kMostRuns)) {
    if (interrupted()) fail(ErrorCode::cancelled, "interrupted");
    const auto at = Clock::now();
    work();
    times.push_back(since(at));
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back(), static_cast<std::int64_t>(times.size())};
}

}  // namespace lockstep
