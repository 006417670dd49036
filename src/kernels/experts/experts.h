// Moving rows to experts and back. A slot is one (row, chosen expert) pair; slots are ordered by (expert, row).
//   plan:     offsets[e] .. offsets[e+1] are the slots of expert e; row_of[slot]; slot_of[t, j] for the j-th chosen expert
//   ranges:   of each expert's slots, those of rows [row_begin, row_end): begin[e] .. end[e] (rows of one adapter)
//   gather:   y[slot] = x[row_of[slot]]
//   combine:  y[t] = sum over the row's slots of weight * x[slot] in 8 fixed groups of expert ids, group(e) = floor(8 e / E):
//             inside a group fma(w, x, acc) in ascending e from +0, empty groups +0, then the pairwise tree over the groups.
//             Without weights (backward of gather): acc + x inside a group. With groups [group_begin, group_end), a whole subtree of
//             that tree, only the subtree's sum: a rank's share. Without slots (slot_of) x has the rows' pairs in order: the j-th of row t is x[t k + j].
//   spread (backward of combine): dx[slot] = w * dy[t]; dweight[t, j] = dot16(dy[t], x[slot]). dx may be x. Pairs of experts
//             outside [expert_begin, expert_end) are left as they are.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct ExpertPlan {
  View offsets;  // i32 [E + 1, 1]; its rows say E
  View row_of;   // i32 [T * k, 1]
  View slot_of;  // i32 [T, k]
  View expert;   // i32 [T, k], ascending in a row
};
struct SlotRanges {
  View begin, end;       // i32 [E, 1]
  View offsets, row_of;  // as planned
  std::int64_t row_begin = 0, row_end = 0;
};
struct ExpertGather {
  View y, x, row_of;
};
struct ExpertCombine {
  View y;                    // f32 [T, h], overwritten
  View x;                    // f32 [T * k, h]
  View weight;               // f32 [T, k] or none
  View expert;               // i32 [T, k]
  View slot_of;              // i32 [T, k] or none
  std::int64_t experts = 0;  // E
  int group_begin = 0, group_end = 8;
};
struct ExpertSpread {
  View dx;       // f32 [T * k, h]
  View dweight;  // f32 [T, k]
  View dy, x, weight, slot_of;
  View expert{};  // i32 [T, k]; none: all experts
  std::int64_t expert_begin = 0, expert_end = 0;
};

}  // namespace lockstep
