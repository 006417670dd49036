// Divides equal items (leaves of a sum, heads, groups of experts) among ranks: each rank gets a contiguous range, in rank order. Half of the items go
// to half of the ranks, recursively, until one item or one rank is left. So of 2^n leaves every rank owns whole subtrees, for any number of ranks,
// and the ranks' partial sums join to the tree of the whole. Surplus ranks own nothing. Knows no sum and no device; pure functions.
//   deal(8, 3) == {0, 2, 4, 8}; joins(8, 3) == {{0, 1}, {0, 2}}
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

// Rank r owns [bounds[r], bounds[r + 1]). Odd numbers of items and of ranks are rounded up on the left.
std::vector<std::int64_t> deal(std::int64_t count, int ranks);

// The joins of the ranks' partial sums in their order: {into, from} is sum[into] = sum[into] + sum[from]; rank 0 has the whole at
// the end. Ranks that own nothing do not appear. `count` is a power of two.
std::vector<std::pair<int, int>> joins(std::int64_t count, int ranks);

}  // namespace lockstep
