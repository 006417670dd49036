// A pass in which each of the ranks that share a replica's experts has rows of its own (docs/ranks.md, "Experts of other ranks"): how many, and how rows
// travel to the ranks with their experts and sums back. On every rank the rows of all stand one rank after another, as if one rank had them.
//   const DealtRows dealt(backend, {0, 40, 40, 57}, segments);   // three ranks: 40 rows, none, 17
//   options.dealt_rows = &dealt;
// What was chosen stays on the device: buffers have room for all rows, and only the transport (parallel/chosen_rows.h) looks at it.
// One pass, on the thread of its rank; outlives the forward and its backward.
#pragma once
#include <vector>

#include "model/context.h"
#include "parallel/chosen_rows.h"

namespace lockstep {

class DealtRows {
 public:
  // Rank r of the group has rows [begin[r], begin[r + 1]) of all. `segments`: Rows::segment of all rows; neighbours of two ranks have two numbers.
  DealtRows(Backend& backend, std::vector<std::int64_t> begin, const std::vector<std::int32_t>& segments);
  std::int64_t count() const { return begin_.back(); }
  // A rank's rows of a view of all.
  View of(const View& all, int rank) const;
  const View& segment() const { return segment_.view(); }
  const std::vector<std::int64_t>& begin() const { return begin_; }

 private:
  std::vector<std::int64_t> begin_;
  Buffer segment_;
};

// Which experts the rows of all ranks chose, i32 [all rows, k], and which each rank has: r those in [bounds[r], bounds[r + 1]).
struct ExpertsOfRanks {
  View expert;
  ColumnSplit bounds;
};

// All ranks' `own`, whole.
Buffer rows_of_all(Context& ctx, const View& own);
// The rows of all ranks that experts of this rank were chosen for; the others are not to be read. None where this rank has no expert.
Buffer rows_for_experts(Context& ctx, const View& own, const ExpertsOfRanks& experts);
// y, of this rank's rows, becomes the sum over the groups of experts of all ranks, as join_experts makes it. `sums`: of all rows, over this rank's groups.
// Where there are more ranks than groups, expert_pairs.h does.
void join_sums_at_home(Context& ctx, const View& y, const View& sums, const ExpertsOfRanks& experts);
// For each (row, expert) pair of this rank the value that the expert's rank has in `values`, f32 [all rows, k].
Buffer values_of_experts(Context& ctx, const View& values, const ExpertsOfRanks& experts);

}  // namespace lockstep
