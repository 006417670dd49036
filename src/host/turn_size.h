// Chooses how many tokens of a model's batch one turn computes while no other model waits: as many as take about a given number of seconds, by the
// times of the model's earlier gradients. The size only doubles and halves, so that equal batches are cut at the same places, where kept forwards can
// be found again. Plain values; no bit depends on it.
//   turn.took(tokens, seconds, least, limit); end = piece_end(sequences, next, turn.tokens(least, others_wait));
#pragma once
#include <algorithm>
#include <cstdint>

namespace lockstep {

class TurnSize {
 public:
  static constexpr std::int64_t kMostFactor = 8;

  // `least`: the size while other models wait.
  std::int64_t tokens(std::int64_t least, bool others_wait) const { return others_wait ? least : least * factor_; }
  // Reports a piece of a gradient and its seconds. `limit`: how long a turn may last; 0: sizes stay as they are.
  void took(std::int64_t tokens, double seconds, std::int64_t least, double limit) {
    const bool full = tokens * 2 > least * factor_;
    if (seconds > 2 * limit) factor_ = std::max<std::int64_t>(1, factor_ / 2);
    else if (full && seconds * 2 < limit) factor_ = std::min(most_, factor_ * 2);
  }
  // Memory did not suffice for that many tokens: the size stays below.
  void too_large() { factor_ = most_ = std::max<std::int64_t>(1, factor_ / 2); }

 private:
  std::int64_t factor_ = 1, most_ = kMostFactor;
};

}  // namespace lockstep
