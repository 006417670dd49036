// Measures the processor's peak rate of fp32 multiply-adds: independent sums in registers, no memory. It bounds the rate of any product.
//   const double gigaflops = multiply_rate(backend.isa(), pool, 0.5);   // a multiply-add counts 2
#pragma once
#include "base/thread_pool.h"
#include "kernels/table.h"

namespace lockstep {

// The best of several runs of all the pool's threads at once, in GFLOP/s, over about `seconds`. AVX2 or AVX-512.
double multiply_rate(InstructionSet isa, ThreadPool& pool, double seconds);

// Does `steps` rounds of independent multiply-adds and returns the number of operations (2 a lane). `sums`: 160 initial numbers; the result goes to
// the first 16.
std::int64_t multiply_avx2(std::int64_t steps, float* sums);
std::int64_t multiply_avx512(std::int64_t steps, float* sums);

}  // namespace lockstep
