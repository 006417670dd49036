// What the kernels' work counters (model/forward_counts.h) cost: the same forward with them and without, in turns.
//   const CounterTiming t = time_counters(opened, {.sequences = 8, .tokens = 1, .context = 128}, {2.0});
#pragma once
#include "benchmark/timing.h"
#include "serving/loading.h"

namespace lockstep {

// `tokens` rows of each of `sequences`, at the positions behind `context` others that are in the cache.
struct CounterCase {
  std::int64_t sequences = 1, tokens = 1, context = 128;
};
struct CounterTiming {
  Timing with, without;                          // seconds of one forward
  std::int64_t pairs_read = 0, expert_rows = 0;  // what the counters of one forward say
};

// Error invalid_argument where context and tokens are more than the model's context.
CounterTiming time_counters(const OpenedModel& opened, const CounterCase& shape, const TimeBudget& budget);

}  // namespace lockstep
