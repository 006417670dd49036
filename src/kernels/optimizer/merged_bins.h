// Adds and carries the bins of several normalised accumulators of square_sum, one lane each: exact, so the order does not matter.
// A template over V so that it is compiled for the instruction set of V.
#pragma once
#include "base/device_code.h"

namespace lockstep {

template <class V>
struct MergedBins {
  double bin[3] = {0, 0, 0};
  LOCKSTEP_EVERYWHERE void add(double high, double middle, double low) {
    bin[0] += high, bin[1] += middle, bin[2] += low;
    const double carry1 = __builtin_floor(bin[2] * 0x1p+50) * 0x1p-50;
    bin[2] -= carry1, bin[1] += carry1;
    const double carry0 = __builtin_floor(bin[1] * 0x1p+4) * 0x1p-4;
    bin[1] -= carry0, bin[0] += carry0;
  }
  // NaN beyond 2^44, as the accumulator has it.
  LOCKSTEP_EVERYWHERE double total() const { return ((bin[0] + bin[1]) + bin[2]) + (bin[0] * 0x1p+980) * 0.0; }
};

}  // namespace lockstep
