// Rows of one sequence in the next forward: the scheduler plans them, the step runs them.
//   for (const PlannedSlice& p : scheduler.plan()) use(*p.sequence, p.begin, p.count);
#pragma once
#include <cstdint>

#include "engine/sequence.h"

namespace lockstep {

// Rows [begin, begin + count) of a sequence. Slices of a plan stand adapter by adapter, those that are computed before those that are read.
struct PlannedSlice {
  Sequence* sequence = nullptr;
  std::int64_t begin = 0, count = 0;
  bool decode = false;
  bool last = false;         // no known token remains: the next one can be sampled
  std::int64_t drafted = 0;  // of its rows, the last ones: those of guessed tokens, which are sampled from, too
  bool read = false;         // its rows are not computed: an earlier forward kept them (engine/kept_scores.h)
};

}  // namespace lockstep
