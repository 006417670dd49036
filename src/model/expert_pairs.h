// Sums over experts where more ranks share them than there are groups of experts (numerics/form.h): no rank has all of a group, so none has its sum. The
// output of each pair of row and expert goes to the rank that sums the row, and is added there in the order of one rank.
//   sum_pairs(ctx, y, {outputs, weight, expert, slot_of, experts, bounds});
// Where ranks have rows of their own (ForwardOptions::dealt_rows) each sums those; of the same rows on all ranks each sums some, and they are gathered.
// Buffers have room for every pair of every rank, since only the device knows which expert was chosen; between processes the chosen ones travel.
#pragma once
#include "model/context.h"

namespace lockstep {

struct ExpertPairs {
  View of_slots;             // f32 [T k, h], of which slots of this rank's experts are read
  View weight;               // f32 [T, k], or none: sums without weights
  View expert, slot_of;      // i32 [T, k] without gaps, of the rows of all ranks
  std::int64_t experts = 0;  // of all ranks
  ColumnSplit bounds;        // rank r has the experts in [bounds[r], bounds[r + 1])
};

// y, f32 of this rank's rows: what expert_combine makes of all pairs (kernels/experts/experts.h).
void sum_pairs(Context& ctx, const View& y, const ExpertPairs& pairs);

}  // namespace lockstep
