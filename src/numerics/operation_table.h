// Tests only: every operation of a vector type behind one plain signature, so that a test compiled for no special
// instruction set can compare them.
//   OperationTable t = operation_table<ScalarVec>();  t.operations[i].apply(in, out);
// Instantiated once per instruction set (operation_table_*_test.cpp), AVX-512 behind a pragma: everything below is a template over V, so that
// no code is shared between the instruction sets.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

#include "numerics/element.h"

namespace lockstep {

// What the inputs of an operation may be.
enum class Domain {
  any,       // every bit pattern
  exponent,  // integral in [-126, 127]
  doubles,   // operands are 16 doubles each
};
// `in` holds 4 operands of 16 floats (or 2 of doubles), of which `arity` count; `out` receives `words` 32-bit words.
struct VectorOperation {
  const char* name;
  int arity;
  Domain domain;
  int words;
  int number_bytes;  // 4 float, 8 double, 2 bf16: for comparing NaNs
  void (*apply)(const void* in, std::uint32_t* out);
};
struct OperationTable {
  std::vector<VectorOperation> operations;
  // Accumulates count blocks of 16 floats in `parts` contiguous parts that are normalised apart and merged; bins: 48 doubles.
  void (*accumulate)(const float* values, int count, int parts, double* bins, float* total) = nullptr;
};
OperationTable scalar_operations();
OperationTable avx2_operations();
OperationTable avx512_operations();  // call only on machines that have it

}  // namespace lockstep
