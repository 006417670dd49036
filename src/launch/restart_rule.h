// How often a launch starts again after a loss, and how long it waits before: the first time at once, then doubling; a run that has saved a new checkpoint
// since the last loss begins to count anew.
//   RestartRule rule(3, 1); if (const auto seconds = rule.after_loss(saved_something)) wait(*seconds); else give_up();
// Plain arithmetic. One thread.
#pragma once
#include <algorithm>
#include <optional>

namespace lockstep {

class RestartRule {
 public:
  RestartRule(int most, double first_wait) : most_(most), first_wait_(first_wait) {}
  // Seconds to wait before the next start; empty: it was the last one.
  std::optional<double> after_loss(bool came_on) {
    if (came_on) in_a_row_ = 0;
    if (++in_a_row_ > most_) return std::nullopt;
    if (in_a_row_ == 1) return 0;
    double wait = first_wait_;
    for (int i = 2; i < in_a_row_ && wait < kLongest; ++i) wait *= 2;
    return std::min(wait, kLongest);
  }
  int in_a_row() const { return in_a_row_; }  // losses without a new checkpoint

 private:
  static constexpr double kLongest = 300;
  int most_;
  double first_wait_;
  int in_a_row_ = 0;
};

}  // namespace lockstep
