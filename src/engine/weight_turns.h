// Chooses the weights of the next forward when requests carry different ones (a snapshot, another trainer's). A forward computes under one set of
// weights, so sets take turns. Used by one thread at a time.
//   turns.set_newest(identity); for (const std::uint64_t weights : turns.order(running, waiting)) if (plans(weights)) { turns.taken(weights); break; }
#pragma once
#include <map>
#include <span>
#include <vector>

#include "engine/sequence.h"

namespace lockstep {

class WeightTurns {
 public:
  // The weights of sequences without their own (WeightSet::identity).
  void set_newest(std::uint64_t weights) { newest_ = weights; }
  std::uint64_t newest() const { return newest_; }
  std::uint64_t weights_of(const Sequence& s) const { return s.weights ? s.weights->identity : newest_; }

  // All weights that the sequences use, least recent turn first. New weights count as having just had a turn, so that none is starved by others
  // that come and go.
  std::vector<std::uint64_t> order(std::span<Sequence* const> running, std::span<Sequence* const> waiting);
  void taken(std::uint64_t weights) { last_[weights] = ++now_; }

 private:
  std::uint64_t newest_ = 0, now_ = 0;
  std::map<std::uint64_t, std::uint64_t> last_;  // of the weights that sequences had when order() was asked
};

}  // namespace lockstep
