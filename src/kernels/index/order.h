// The order in which index scores are selected (index.h), as a sortable integer: shared by CPU and GPUs.
#pragma once
#include "numerics/element.h"

namespace lockstep {

// Greater is chosen first: ascending with the score, -0 as +0; 0 is a NaN, below all scores. Always inlined, as form.h says.
LOCKSTEP_EVERYWHERE [[gnu::always_inline]] inline std::uint32_t selection_order(float score) {
  if (score != score) return 0;
  const std::uint32_t u = float_bits(score + 0.0f);  // -0 becomes +0
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}

}  // namespace lockstep
