// Test mode: give way as often as possible. With LOCKSTEP_GIVE_WAY=SEED test programs and build/lockstep_faults run every kernel in its smallest
// parts, on any thread; between two parts the thread's scratch is overwritten, and on an executor a live step runs at every boundary of training.
// Turns are random instead of by shares. No bit may depend on it. The released program has nothing of it (kill_point.cpp); the test programs'
// functions are in tests/tools/faults.cpp.
//   if (gives_way_everywhere()) overwrite_scratch();
#pragma once
#include <cstddef>

namespace lockstep {

bool gives_way_everywhere();
// Fills the calling thread's scratch memory of kernels with NaN.
void overwrite_scratch();
// A random turn, 0 .. count - 1; count is at least 1.
std::size_t drawn_turn(std::size_t count);

}  // namespace lockstep
