// Measures the peak rate of fp32 multiply-adds in registers, by all threads at once: the ceiling of every fp32 product on this machine. Beside it the rate of
// a product's tile in the first cache. Half of the time each.
//   const ArithmeticTiming t = time_arithmetic({.threads = 2}, 0.5);   // t.gigaflops
#pragma once
#include <string>

#include "kernels/backend.h"

namespace lockstep {

struct ArithmeticTiming {
  int threads = 0;
  std::string isa;
  double gigaflops = 0;       // of the best run; a multiply-add counts 2
  double tile_gigaflops = 0;  // the same with operands in the first cache, loaded as a product's tile loads them
};

// Error unsupported for an instruction set other than AVX2 and AVX-512.
ArithmeticTiming time_arithmetic(const BackendOptions& machine, double seconds);

}  // namespace lockstep
