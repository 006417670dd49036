// The work of one launched kernel, from its arguments: arithmetic, and the bytes that it must move at least. Read from the shapes and, where the shapes
// do not say it, from what the launch was given (positions, the rows of each expert), so only of a device that the host can read, once the kernel is done.
//   const KernelWork work = work_of(LinearForward{.y = y, .x = x, .w = w});   // work.flop == 2 * rows * outputs * inputs
#pragma once
#include "kernels/table.h"

namespace lockstep {

struct KernelWork {
  // Additions and multiplications (numerics/flop.h). Of kernels with products or attention: these alone; of others, what their headers' formulas
  // have, where a root, a division or an exponential counts 1. Deposits into order-free accumulators and comparisons count nothing.
  double flop = 0;
  // Each operand read once and each result written once, as if the processor's caches held everything in between. Of a KV cache only the entries that
  // some row sees count, and of experts only the matrices of those that have rows.
  double bytes = 0;
};

#define LOCKSTEP_WORK(kernel, Arguments) KernelWork work_of(const Arguments& op);
LOCKSTEP_KERNELS(LOCKSTEP_WORK)
#undef LOCKSTEP_WORK

}  // namespace lockstep
