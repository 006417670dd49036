// The input embedding: a table's row for each token of the batch.
//   Tensor x = embedding(ctx, table);   // [T, inputs]
// Ranks split a table by columns, which are then gathered; a table tied to the head is split by tokens, as the head is: each rank looks up its own
// tokens, and rows are gathered.
#pragma once
#include "model/context.h"

namespace lockstep {

// The gradient of a tied table is made together with the head's (Tape::set_table_gradient).
Tensor embedding(Context& ctx, ParameterId table);

}  // namespace lockstep
