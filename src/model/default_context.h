// The default context length of a runtime, when none is given.
//   context_or_default(0, 131072) == kDefaultMostPositions; context_or_default(4096, 131072) == 4096;
#pragma once
#include <algorithm>
#include <cstdint>

namespace lockstep {

inline constexpr std::int64_t kDefaultMostPositions = 65536;  // a longer rope table costs memory, so it must be asked for

// `asked` 0: not given.
inline std::int64_t context_or_default(std::int64_t asked, std::int64_t model_positions) {
  return asked > 0 ? asked : std::min(model_positions, kDefaultMostPositions);
}

}  // namespace lockstep
