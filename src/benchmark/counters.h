// Measures what the kernels' work counters (model/forward_counts.h) cost: times the same forward with them and without, in turns.
//   const CounterTiming t = time_counters(opened, {.sequences = 8, .tokens = 1, .context = 128}, {2.0});
#pragma once
#include "benchmark/timing.h"
#include "serving/loading.h"

namespace lockstep {

// A forward of `tokens` tokens of each of `sequences`, which have `context` earlier tokens in the cache.
struct CounterCase {
  std::int64_t sequences = 1, tokens = 1, context = 128;
};
struct CounterTiming {
  Timing with, without;                          // seconds of one forward
  std::int64_t pairs_read = 0, expert_rows = 0;  // the counters of one forward
};

// Error invalid_argument: `context` + `tokens` is more than the model's context.
CounterTiming time_counters(const OpenedModel& opened, const CounterCase& shape, const TimeBudget& budget);

}  // namespace lockstep
