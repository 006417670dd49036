// A linear layer y = x W^T in fp32 with no fixed order of sums: several accumulators per sum, over inputs in turn, joined as they come. It shows
// what a kernel without the contract can do on the same panels and tiles as kernels/linear: the ratio of the two is the cost of the order.
//   free_product({y, x, w, rows, outputs, inputs, 2}, backend.isa(), pool);
// Its bits depend on the tile; for the benchmark only.
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
  int accumulators = 1;          // of a sum: 1, 2 or 4
  std::int64_t part_inputs = 0;  // above 0: inputs are added in parts of this many, as in long products (kernels/linear/long_product.h)
};

// AVX2 or AVX-512.
void free_product(const FreeProduct& op, InstructionSet isa, ThreadPool& pool);
void free_product_avx2(const FreeProduct& op, ThreadPool& pool);
void free_product_avx512(const FreeProduct& op, ThreadPool& pool);

}  // namespace lockstep
