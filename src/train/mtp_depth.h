// What the forward of one depth of MtpRank leaves for its losses and its backward, and the values that its results are sums of. Only MtpRank's sources
// include it.
#pragma once
#include "train/mtp_rank.h"

namespace lockstep {

struct MtpRank::Depth {
  std::unique_ptr<Context> context;
  Buffer targets, weights, logprob, loss, dx;  // of the cross-entropy
  Tensor normed;
};

// Of this rank's rows and chains, in any order.
struct MtpRank::Values {
  explicit Values(std::int64_t depths) : entropies(static_cast<std::size_t>(depths)), overlaps(entropies.size()), targets(entropies.size()) {}
  std::vector<std::vector<double>> entropies, overlaps;  // of each depth
  std::vector<double> variation, index;
  std::vector<std::int64_t> targets;
};

}  // namespace lockstep
