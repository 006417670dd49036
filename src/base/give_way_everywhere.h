// Giving way at its finest, for tests of bits alone: with LOCKSTEP_GIVE_WAY=SEED test programs and build/lockstep_faults run every kernel in its smallest
// parts, on any thread; between two of them the thread's scratch is overwritten, and on an executor a live step runs at every boundary of training, if there
// is one. Whose turn it is is drawn instead of told by shares. No bit may depend on it. In the released program nothing of that exists (kill_point.cpp); the
// test programs' functions are in tests/tools/faults.cpp.
#pragma once
#include <cstddef>

namespace lockstep {

bool gives_way_everywhere();
// Of the calling thread: whatever kernels may leave there becomes NaN.
void overwrite_scratch();
// 0 .. count - 1; count at least 1.
std::size_t drawn_turn(std::size_t count);

}  // namespace lockstep
