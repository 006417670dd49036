// Test mode: give way as often as possible. With LOCKSTEP_GIVE_WAY=SEED test programs and build/lockstep_faults run every kernel in its smallest
// parts, on any thread; between two parts the thread's scratch is overwritten, and on an executor a live step runs at every boundary of training.
// Turns are random instead of by shares. No bit may depend on it. The released program has nothing of it (kill_point.cpp); the test programs'
// functions are in tests/tools/faults.cpp.
//   if (gives_way_everywhere()) overwrite_scratch();
#pragma once
#include <cstddef>

namespace lockstep {

bool gives_way_everywhere();
// Of the calling thread: whatever kernels may leave there becomes NaN.
void overwrite_scratch();
// 0 .. count - 1; count at least 1.
std::size_t drawn_turn(std::size_t count);

}  // namespace lockstep
