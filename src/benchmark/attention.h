// Times attention over cached keys alone (kernels/attention): rows of one sequence at the end of its context, as in decoding (one
// row) or prefill (all of them). Grouped queries, dense.
//   const AttentionTiming t = time_attention({.rows = 512, .context = 512, .heads = 9, .kv_heads = 3, .size = 64}, {.threads = 2}, {0.5});
#pragma once
#include "benchmark/timing.h"
#include "kernels/backend.h"

namespace lockstep {

struct AttentionCase {
  std::int64_t rows = 1, context = 512;  // the last rows of the context's positions; rows <= context
  std::int64_t heads = 9, kv_heads = 3, size = 64;
  bool bf16_cache = false;
};
struct AttentionTiming {
  Timing time;
  double gigaflops = 0;             // 4 x size a pair of query and key that it sees, and head
  double gigabytes_per_second = 0;  // of the cache, read once a run
};

AttentionTiming time_attention(const AttentionCase& shape, const BackendOptions& machine, const TimeBudget& budget);

}  // namespace lockstep
