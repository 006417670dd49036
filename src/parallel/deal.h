// How a row of equal things (leaves of a sum, heads, groups of experts) is dealt to ranks: in rank order, each rank a run of them,
// by halving: half of the things go to half of the ranks until one of both is left. So of 2^n leaves every rank owns whole
// subtrees, whatever the number of ranks, and the ranks' partial sums join to the tree of the whole. Ranks beyond the things own
// nothing. Knows no sum and no device; pure functions.
//   deal(8, 3) == {0, 2, 4, 8}; joins(8, 3) == {{0, 1}, {0, 2}}
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

// Rank r owns [bounds[r], bounds[r + 1]). An odd number goes up on the left, of things and of ranks.
std::vector<std::int64_t> deal(std::int64_t count, int ranks);

// The joins of the ranks' partial sums in their order: {into, from} is sum[into] = sum[into] + sum[from]; rank 0 has the whole at
// the end. Ranks that own nothing do not appear. `count` is a power of two.
std::vector<std::pair<int, int>> joins(std::int64_t count, int ranks);

}  // namespace lockstep
