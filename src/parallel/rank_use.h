// Where the time of each rank of a run has gone, and what it has exchanged, wherever it is: for metrics.
//   const std::vector<RankUse> now = rank_uses(ranks); now[1].computed(); const RankUse step = now[1] - before[1];
// Plain values.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "parallel/exchange_counts.h"
#include "parallel/ranks.h"

namespace lockstep {

struct RankUse {
  RankExchanges exchanges;
  double worked = 0;  // seconds in runs of its owner, all that follows included
  int process = 0;
  std::array<char, 64> host_name{};  // its first letters

  double waited() const { return exchanges.sum().waited; }  // for other ranks
  double sent() const { return exchanges.sum().moved; }     // seconds that what it sent and got took here
  double computed() const;                                  // the rest
  std::int64_t sent_bytes() const { return exchanges.sum().sent; }
  std::string host() const { return host_name.data(); }
  RankUse operator-(const RankUse& earlier) const;
};

// Of all ranks so far, by rank; empty where there is one. Every owner of the ranks makes the call, between two runs.
std::vector<RankUse> rank_uses(Ranks& ranks);

}  // namespace lockstep
