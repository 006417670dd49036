// The operations of ScalarVec, for the tests beside this file.
#include "numerics/operation_table.h"

#include "numerics/isa/scalar.h"
#include "numerics/operation_table.inc"

namespace lockstep {
OperationTable scalar_operations() { return operation_table<ScalarVec>(); }
}  // namespace lockstep
