// Long kernels in parts, between which more urgent work of the same thread runs (base/give_way.h): live tokens while a training step computes. Each item
// computes the same wherever the parts end, so they change no bit. Where a thread has no pause point, or nobody needs it, a kernel is one part.
// Between two parts nothing of the kernel stands in the calling thread's scratch (thread_scratch), which the other work's kernels use.
// Knows no class of work. Included by .inl files: no header of the standard library but through kernels/prelude.h.
//   run_in_parts(pool, blocks, 16 * inputs * outputs, [&](std::int64_t block) { ... });
#pragma once
#include "base/thread_pool.h"

namespace lockstep {

// Multiply-adds that a part should have at most, on this thread and at the moment; 0: kernels need no parts.
std::int64_t longest_part();
// Between two parts.
void end_of_part();

// As pool.run(items, work). `adds`: multiply-adds of an item, or what takes as long.
template <class Work>
inline void run_in_parts(ThreadPool& pool, std::int64_t items, std::int64_t adds, const Work& work) {
  const std::int64_t most = longest_part(), threads = pool.threads();
  if (most == 0) return pool.run(items, work);
  const std::int64_t whole = most / (adds > 0 ? adds : 1) / threads * threads, step = whole > threads ? whole : threads;
  for (std::int64_t begin = 0; begin < items; begin += step) {
    if (begin > 0) end_of_part();
    pool.run(items - begin < step ? items - begin : step, [&](std::int64_t item) { work(begin + item); });
  }
}

}  // namespace lockstep
