// What a thread does between two looks at what another is about to write.
//   while (!ready()) spin_pause();
#pragma once
#include <immintrin.h>

namespace lockstep {

static inline void spin_pause() { _mm_pause(); }

}  // namespace lockstep
