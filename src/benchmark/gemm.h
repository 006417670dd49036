// Times linear layers y = x W^T (kernels/linear), the product that dominates everything else.
//   const GemmTiming t = time_gemm({.rows = 64, .outputs = 1536, .inputs = 576}, {.threads = 2}, {0.5}, 0);
// `maximum_leaves` 1 is the same kernel without the contract's summation tree: the ratio is the tree's cost. `free_order` is a kernel
// without a contract (kernels/free_order/free_product.h), with 1, 2 and 4 accumulators a sum, and long sums whole and in parts, of which the fastest is
// reported.
#pragma once
#include "benchmark/timing.h"
#include "kernels/backend.h"

namespace lockstep {

struct GemmCase {
  std::int64_t rows = 1, outputs = 0, inputs = 0;  // M, N, K
  bool bf16_weights = false;
  int weight_bits = 0;  // 8 or 4: integers (numerics/quantised.h)
  int maximum_leaves = 8;
  bool free_order = false;  // fp32 weights alone
};
struct GemmTiming {
  GemmCase shape;
  Timing time;
  double gigaflops = 0;             // 2 M N K a run
  double gigabytes_per_second = 0;  // of the weight, read once a run
  int accumulators = 0;             // of the free order
  std::int64_t part_inputs = 0;     // of the free order: inputs of a part of a sum; 0: sums are made whole
};

// Makes as many copies of the weight as exceed `cold_bytes` and takes them in turn, so that no cache holds one when its turn comes, as in a
// model with many layers. 0: one weight, which stays in the caches as far as it fits.
GemmTiming time_gemm(const GemmCase& shape, const BackendOptions& machine, const TimeBudget& budget, std::int64_t cold_bytes);

}  // namespace lockstep
