// What a token costs far behind in a text: forwards of a model's layers over a cache that is filled beforehand, so a million positions cost no prefill.
//   const ContextTiming t = time_context(opened, {.tokens = 65536}, {2.0});   // t.decode.attention: seconds a token
// Tokens are random, and so is what the cache holds: entries and index keys as no text has them, whose costs are those of any. One thread.
#pragma once
#include "benchmark/timing.h"
#include "serving/loading.h"

namespace lockstep {

struct ContextCase {
  std::int64_t tokens = 4096;  // of the text: the timed rows are its last ones
  std::int64_t window = 64;    // rows of a piece of a prompt; a decoded token is one row
};

// Seconds a token of one forward of all layers, without embedding of other rows, head or sampling: of the run whose time is the median, so that parts add up.
struct ContextParts {
  double all = 0;
  double indexer = 0;    // scores and selection, which one kernel makes (kernels/index/index.h)
  double selection = 0;  // of it what a selection of index_topk keys takes beyond one of a single key
  double attention = 0;
  double rest = 0;  // all other kernels, and what lies between kernels
  std::int64_t runs = 0;
};
struct ContextTiming {
  ContextParts prefill, decode;
  std::int64_t cache_bytes = 0;  // a token, of all layers
};

// Errors: invalid_argument for fewer tokens than the window has, or more than the model's context; resource_exhausted where the cache does not fit;
// unsupported on a GPU.
ContextTiming time_context(const OpenedModel& opened, const ContextCase& shape, const TimeBudget& budget);

}  // namespace lockstep
