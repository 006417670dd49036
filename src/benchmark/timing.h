// Times a function by repeating it until a given time is used up. The first run, which fills caches, is not counted. One thread.
//   const Timing t = time_repeated({0.5}, [&] { backend.launch(...); });
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "base/stop_token.h"

namespace lockstep {

struct Timing {
  double median = 0, least = 0, most = 0;  // seconds of one run
  std::int64_t runs = 0;
};

// How long a function is repeated, and who may end it before.
struct TimeBudget {
  double seconds = 1;
  StopToken stop = {};
};

// Runs `work` until the time is over: at least 3 times, at most a million. Error cancelled once stopped.
Timing time_repeated(const TimeBudget& budget, const std::function<void()>& work);
// The same of several things that are compared: one run of each in turn, so that what else the machine does falls on all of them.
std::vector<Timing> time_in_turns(const TimeBudget& budget, const std::vector<std::function<void()>>& works);

}  // namespace lockstep
