#include "benchmark/timing.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/seconds.h"

namespace lockstep {

Timing time_repeated(const TimeBudget& budget, const std::function<void()>& work) { return time_in_turns(budget, {work})[0]; }

std::vector<Timing> time_in_turns(const TimeBudget& budget, const std::vector<std::function<void()>>& works) {
  constexpr std::size_t kLeastRuns = 3, kMostRuns = 1'000'000;
  using Clock = std::chrono::steady_clock;
  for (const auto& work : works) work();
  std::vector<std::vector<double>> times(works.size());
  const auto begin = Clock::now();
  while (times[0].size() < kLeastRuns || (seconds_since(begin) < budget.seconds && times[0].size() < kMostRuns))
    for (std::size_t i = 0; i < works.size(); ++i) {
      budget.stop.throw_if_stopped();
      const auto at = Clock::now();
      works[i]();
      times[i].push_back(seconds_since(at));
    }
  std::vector<Timing> timings;
  for (std::vector<double>& t : times) {
    std::sort(t.begin(), t.end());
    timings.push_back({t[t.size() / 2], t.front(), t.back(), static_cast<std::int64_t>(t.size())});
  }
  return timings;
}

}  // namespace lockstep
