// Times log-probabilities of given tokens under a random one-layer model with any vocabulary size: nearly all of the time is the head's. Also
// reports the memory of a call beside the weights, which must not be the logits of all tokens.
//   const ScoringTiming t = time_scoring({.tokens = 4096, .vocabulary = 150'000, .hidden = 256}, {.threads = 2}, "cpu-bf16w", {1.0});
#pragma once
#include "benchmark/timing.h"
#include "kernels/backend.h"

namespace lockstep {

struct ScoringCase {
  std::int64_t tokens = 4096, vocabulary = 150'000, hidden = 256;
};
struct ScoringTiming {
  Timing time;
  double tokens_per_second = 0;
  std::int64_t bytes = 0;         // most that one call held at a time, beside the weights (tensor/memory.h)
  std::int64_t logits_bytes = 0;  // what the logits of all tokens would be
};

ScoringTiming time_scoring(const ScoringCase& shape, const BackendOptions& machine, const std::string& profile, const TimeBudget& budget);

}  // namespace lockstep
