#include "engine/weight_turns.h"

#include <algorithm>

namespace lockstep {

std::vector<std::uint64_t> WeightTurns::order(std::span<Sequence* const> running, std::span<Sequence* const> waiting) {
  std::map<std::uint64_t, std::uint64_t> present;
  const auto see = [&](const Sequence* s) {
    const std::uint64_t weights = weights_of(*s);
    if (present.contains(weights)) return;
    const auto known = last_.find(weights);
    present[weights] = known != last_.end() ? known->second : ++now_;
  };
  std::for_each(running.begin(), running.end(), see);
  std::for_each(waiting.begin(), waiting.end(), see);
  last_ = std::move(present);
  std::vector<std::uint64_t> all;
  for (const auto& [weights, turn] : last_) all.push_back(weights);
  std::sort(all.begin(), all.end(), [&](std::uint64_t a, std::uint64_t b) { return last_[a] < last_[b]; });
  return all;
}

}  // namespace lockstep
