// Measures the processor's peak rate of fp32 multiply-adds: independent sums in registers, no memory. It bounds the rate of any product. Or the rate with
// operands in the first cache, loaded as a product's tile loads them: what a product can reach that never waits for anything farther away.
//   const double gigaflops = multiply_rate(backend.isa(), pool, 0.5);   // a multiply-add counts 2
#pragma once
#include "base/thread_pool.h"
#include "kernels/table.h"

namespace lockstep {

enum class MultiplyFrom { registers, first_cache };
// The best of several runs of all the pool's threads at once, in GFLOP/s, over about `seconds`. AVX2 or AVX-512.
double multiply_rate(InstructionSet isa, ThreadPool& pool, double seconds, MultiplyFrom from = MultiplyFrom::registers);

// Does `steps` rounds of independent multiply-adds and returns the number of operations (2 a lane). `sums`: 160 initial numbers; the result goes to
// the first 16.
std::int64_t multiply_avx2(std::int64_t steps, float* sums);
std::int64_t multiply_avx512(std::int64_t steps, float* sums);
// The same for `steps` tiles of kTileInputs inputs; `data`: kTileNumbers initial numbers, 11 KB of them used.
inline constexpr int kTileInputs = 64, kTileNumbers = 4096;
std::int64_t multiply_tile_avx2(std::int64_t steps, float* data);
std::int64_t multiply_tile_avx512(std::int64_t steps, float* data);

}  // namespace lockstep
