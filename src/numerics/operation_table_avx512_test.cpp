// The operations of Avx512Vec, for the tests beside this file. The instruction set is switched on after the standard headers.
#include "numerics/operation_table.h"

// The compiler's own headers begin some vectors undefined on purpose.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include "numerics/isa/intrinsics.h"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#include "numerics/isa/avx512.h"
#include "numerics/operation_table.inc"
#pragma GCC pop_options

namespace lockstep {
OperationTable avx512_operations() { return operation_table<Avx512Vec>(); }
}  // namespace lockstep
