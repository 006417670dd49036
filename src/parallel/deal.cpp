#include "parallel/deal.h"

namespace lockstep {

namespace {
struct Dealer {
  std::vector<std::int64_t> bounds{0};
  std::vector<std::pair<int, int>> joins;

  // Partitions items [first, first + count) over ranks [rank, rank + ranks).
  void deal(std::int64_t first, std::int64_t count, int rank, int ranks) {
    if (ranks == 1 || count <= 1) {
      bounds.insert(bounds.end(), static_cast<std::size_t>(ranks), first + count);
      return;
    }
    const std::int64_t left = (count + 1) / 2;
    const int left_ranks = (ranks + 1) / 2;
    deal(first, left, rank, left_ranks);
    deal(first + left, count - left, rank + left_ranks, ranks - left_ranks);
    joins.emplace_back(rank, rank + left_ranks);
  }
};
}  // namespace

std::vector<std::int64_t> deal(std::int64_t count, int ranks) {
  Dealer dealer;
  dealer.deal(0, count, 0, ranks);
  return dealer.bounds;
}

std::vector<std::pair<int, int>> joins(std::int64_t count, int ranks) {
  Dealer dealer;
  dealer.deal(0, count, 0, ranks);
  return dealer.joins;
}

}  // namespace lockstep
