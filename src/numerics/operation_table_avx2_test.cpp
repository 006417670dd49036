// The operations of Avx2Vec, for the tests beside this file.
#include "numerics/operation_table.h"

#include "numerics/isa/avx2.h"
#include "numerics/operation_table.inc"

namespace lockstep {
OperationTable avx2_operations() { return operation_table<Avx2Vec>(); }
}  // namespace lockstep
