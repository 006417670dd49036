// What a runtime takes of a model's context where nobody says how much.
#pragma once
#include <algorithm>
#include <cstdint>

namespace lockstep {

inline constexpr std::int64_t kDefaultMostPositions = 65536;  // the rope table of more costs memory: whoever wants it asks for it

// `asked` 0: nobody said.
inline std::int64_t context_or_default(std::int64_t asked, std::int64_t model_positions) {
  return asked > 0 ? asked : std::min(model_positions, kDefaultMostPositions);
}

}  // namespace lockstep
