// Runs long kernels in parts, between which the same thread does more urgent work (base/give_way.h): live tokens while a training step computes. An
// item's result does not depend on where parts end, so they change no bit. On a thread without a pause point, or while nothing urgent waits, a kernel
// is one part. A kernel must not keep data in thread_scratch from one part to the next: the other work's kernels overwrite it.
// Knows no class of work. Included by .inl files: no header of the standard library but through kernels/prelude.h.
//   run_in_parts(pool, blocks, 16 * inputs * outputs, [&](std::int64_t block) { ... });
#pragma once
#include "base/thread_pool.h"

namespace lockstep {

// The most multiply-adds that a part should have on this thread now; 0: kernels need no parts.
std::int64_t longest_part();
// To be called between two parts: lets the more urgent work run.
void end_of_part();

// As pool.run(items, work), in parts. `adds`: multiply-adds of an item, or as many as take the same time.
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
