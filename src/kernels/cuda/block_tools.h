// Block-wide reductions and scans in CUDA forms, over integers or by total orders only, so that no order of threads changes a result.
// Every thread of the block calls these, and all get the result. `shared`: block memory of t.count() elements, free again afterwards.
#pragma once
#include "kernels/cuda/thread.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

inline constexpr int kBlockThreads = 256;  // of blocks that need no other number; a power of two

// The sum of x over the threads before this one, and `total` over all.
LOCKSTEP_DEVICE std::int32_t sum_before(const Thread& t, std::int32_t x, std::int32_t* shared, std::int32_t& total) {
  shared[t.index()] = x;
  t.sync();
  for (int distance = 1; distance < t.count(); distance *= 2) {
    const std::int32_t left = t.index() >= distance ? shared[t.index() - distance] : 0;
    t.sync();
    shared[t.index()] += left;
    t.sync();
  }
  const std::int32_t before = shared[t.index()] - x;
  total = shared[t.count() - 1];
  t.sync();
  return before;
}

// The one of all threads' x that goes first; goes_first(a, b) is a total order. t.count() is a power of two.
template <class T, class GoesFirst>
LOCKSTEP_DEVICE T first_of_block(const Thread& t, const T& x, T* shared, const GoesFirst& goes_first) {
  shared[t.index()] = x;
  t.sync();
  for (int half = t.count() / 2; half >= 1; half /= 2) {
    if (t.index() < half && goes_first(shared[t.index() + half], shared[t.index()])) shared[t.index()] = shared[t.index() + half];
    t.sync();
  }
  const T first = shared[0];
  t.sync();
  return first;
}

LOCKSTEP_DEVICE std::int64_t least_of_block(const Thread& t, std::int64_t x, std::int64_t* shared) {
  return first_of_block(t, x, shared, [](std::int64_t a, std::int64_t b) { return a < b; });
}

// The part of n items that is this thread's where neighbours must stay together: parts ascend with the threads.
struct ThreadPart {
  std::int64_t begin, end;
  LOCKSTEP_DEVICE ThreadPart(const Thread& t, std::int64_t n) {
    const std::int64_t size = (n + t.count() - 1) / t.count();
    begin = t.index() * size < n ? t.index() * size : n;
    end = begin + size < n ? begin + size : n;
  }
};

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
