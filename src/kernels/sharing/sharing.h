// Rows shared by several sequences: copied back to each sequence, or their gradients summed.
//   gather_rows:     y[t] = x[row_of[t]], copied; f32 or i32.
//   slot_source:     source[slot_of[t, j]] = from[row_of[t], j]: the slot that row t's j-th expert (experts.h) had before the rows were
//                    gathered.
//   sum_shared_rows: y[r] = sum over i in [begin[r], begin[r + 1]) of x[row[i]]. Two or more rows are deposited into the order-free
//                    accumulator and rounded once; a single one is copied; none gives +0.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct GatherRows {
  View y, x;
  View row_of;  // i32 [y.rows, 1]
};
struct SlotSource {
  View source;           // i32 [T * k, 1]
  View slot_of, row_of;  // i32 [T, k], [T, 1]
  View from;             // i32 [*, k]
};
struct SumSharedRows {
  View y, x;        // f32 [R, n], [*, n]
  View begin, row;  // i32 [R + 1, 1], [*, 1]
};

}  // namespace lockstep
