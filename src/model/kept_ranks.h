// Which ranks keep and read the rows of kept forwards (model/kept_forwards.h): threads of one process on the CPU, since one of them keeps the rows for all.
//   if (keeps_over_ranks(rank_layout("tp=2"), RowValues::segments, BackendKind::cpu)) ...
#pragma once
#include "model/row_values.h"
#include "parallel/layout.h"

namespace lockstep {

// Whether ranks of a layout find whole rows and read them. Outputs of segments are whole on every rank; of operations tp and ep ranks make shares. What
// exchanges within segments as the forward goes through them (stages, weights in shares, rows that travel) cannot have segments that are not run. Layouts of
// more ranks than a run may have, which plans alone are of, keep nothing.
inline bool keeps_over_ranks(const RankLayout& ranks, RowValues values, BackendKind kind) {
  if (ranks.size() == 1) return true;
  if (ranks.size() > kMostRanks || kind != BackendKind::cpu || ranks.pp > 1 || ranks.shards_weights() || ranks.deals_rows()) return false;
  return values == RowValues::segments || ranks.replica() == 1;
}

}  // namespace lockstep
