// The input embedding: a table's row for each token of the batch. Ranks share a table by columns, which are gathered; one that is the
// head too by tokens, as the head is: each rank looks up the tokens that are its own, and rows are gathered.
//   Tensor x = embedding(ctx, table);   // [T, inputs]
#pragma once
#include "model/context.h"

namespace lockstep {

// The gradient of a tied table goes with the head's (Tape::keep_table_gradient).
Tensor embedding(Context& ctx, ParameterId table);

}  // namespace lockstep
