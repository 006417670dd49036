// Decides how many tokens to guess ahead for a request. Example: a token takes 10 ms now, and one more row makes a forward 1 ms longer; then a guess
// pays while it is right more often than one time in ten. A forward of n rows takes about a + b n seconds; b is measured over the engine's steps, the
// chance of a guess for each source and request, both with recent values weighing more. The lengths depend on measured times and so differ between
// runs; the bits of answers do not. Used by one thread at a time.
//   StepCosts costs; costs.observe(rows, seconds); DraftChance chance; if (chance.right(0.6) < costs.row_share(rows)) return;
#pragma once
#include <cstdint>

namespace lockstep {

// Seconds of a forward as a linear function of its rows, fitted to recent steps.
class StepCosts {
 public:
  void observe(std::int64_t rows, double seconds);
  // The cost of one more row relative to the average cost of a row, in a forward of that many rows: near 0 where reading weights dominates, 1 where
  // rows are computed one by one. A default before anything was measured.
  double row_share(std::int64_t rows) const;
  // Average seconds of a row in such a forward; 0: too little was measured.
  double seconds_a_row(std::int64_t rows) const;

 private:
  // Seconds of one more row, and of a row on average; 0: too little was measured.
  struct Line {
    double a_row = 0, average = 0;
  };
  Line line(std::int64_t rows) const;

  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_squared_ = 0, rows_seconds_ = 0;
};

// The recent share of a source's draft tokens that were accepted. Tokens behind a rejected one are not counted.
class DraftChance {
 public:
  void observe(bool right);
  // `before`: the chance of other requests, with the weight of kPriorTokens tokens.
  double right(double before) const { return (right_ + kPriorTokens * before) / (tried_ + kPriorTokens); }

 private:
  static constexpr double kPriorTokens = 4;
  double tried_ = 0, right_ = 0;
};

}  // namespace lockstep
