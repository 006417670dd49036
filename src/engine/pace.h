// Fixes how a request's tokens go through the model: how many rows at once. For `lockstep parity`, which compares such ways; no bit depends on it. A
// plain value.
//   engine.set_pace(id, {.rows = 1});
#pragma once
#include <cstdint>
#include <limits>

namespace lockstep {

struct Pace {
  std::int64_t rows = 0;  // of a prompt in one forward; 0: options.prefill_chunk
  bool decodes = false;   // single rows behind the first token are planned and counted as decoding, although their tokens are the prompt's
  std::int64_t cached_pages = std::numeric_limits<std::int64_t>::max();  // at most so many come from the prefix cache when it is admitted
};

}  // namespace lockstep
