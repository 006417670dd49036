// A linear layer y = x W^T in fp32 whose sums are added in whatever order suits the tile: several accumulators a sum, over inputs in turn,
// joined as they come. What a kernel without a contract may do, on the same packed weight and tiles as kernels/linear: the ratio of the
// two is what the order costs. Its bits depend on the tile; for the benchmark alone.
//   free_product({y, x, w, rows, outputs, inputs, 2}, backend.isa(), pool);
#pragma once
#include <cstdint>

#include "base/thread_pool.h"
#include "kernels/table.h"

namespace lockstep {

struct FreeProduct {
  float* y;        // [rows, outputs]
  const float* x;  // [rows, inputs]
  const float* w;  // panels [outputs / 16][inputs][16]
  std::int64_t rows, outputs, inputs;
  int accumulators = 1;  // of a sum: 1, 2 or 4
};

// AVX2 or AVX-512.
void free_product(const FreeProduct& op, InstructionSet isa, ThreadPool& pool);
void free_product_avx2(const FreeProduct& op, ThreadPool& pool);
void free_product_avx512(const FreeProduct& op, ThreadPool& pool);

}  // namespace lockstep
