// Kernels that join the results of ranks (docs/ranks.md), besides plain adds.
//   join_bins: into = into + from, order-free accumulators bin by bin, then carried: exact, so no order shows. Both normalised.
//   pick:      y[t, j] = parts[r T + t, j], r the rank whose range [bounds[r], bounds[r + 1]) holds index[t, j] (index[t, 0] if `index` has one
//              column). A copy without arithmetic.
#pragma once
#include <vector>

#include "kernels/rows.h"

namespace lockstep {

struct JoinBins {
  View into, from;  // bins, the same shape, a multiple of 16 elements per row
};
struct Pick {
  View y;      // f32 [T, n]
  View parts;  // f32 [ranks * T, n]
  View index;  // i32 [T, n] or [T, 1]; each in one of the ranges
  std::vector<std::int64_t> bounds;
};

}  // namespace lockstep
