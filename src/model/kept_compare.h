// Compares rows that an earlier forward kept (model/kept_forwards.h) with the same rows as they are computed now.
//   compare_kept(backend, forwards, value, {{kept_row, made_row, sequence, position}});
#pragma once
#include <string>
#include <vector>

#include "model/kept_forwards.h"

namespace lockstep {

struct KeptAndMade {
  View kept, made;  // f32 [1, width]
  // Whose they are, for the message of an error: sequence -1 is the only one.
  std::int64_t sequence = -1, position = 0;
};

// Of rows of one value, on the device of the caller's rank, the first different bit, as a sentence; empty: there is none.
std::string kept_difference(Backend& backend, const KeptForwards& forwards, std::int64_t value, const std::vector<KeptAndMade>& rows);
// Error internal with that sentence.
void compare_kept(Backend& backend, const KeptForwards& forwards, std::int64_t value, const std::vector<KeptAndMade>& rows);

}  // namespace lockstep
