// Decides how many tokens to guess ahead for a request. Example: a token takes 10 ms now, and one more row makes a forward 1 ms longer; then a guess
// pays while it is right more often than one time in ten. A forward of n rows takes about a + b n seconds; b is measured over the engine's steps, the
// chance of a guess for each source and request, both with recent values weighing more. The lengths depend on measured times and so differ between
// runs; the bits of answers do not. Used by one thread at a time.
//   StepCosts costs; costs.observe(rows, seconds); DraftChance chance; if (chance.right(0.6) < costs.row_share(rows)) return;
#pragma once
#include <cstdint>

namespace lockstep {

// Seconds of forwards by their rows: a line through what was measured lately.
class StepCosts {
 public:
  void observe(std::int64_t rows, double seconds);
  // What a row more costs of what a row costs on average, in a forward of so many: near 0 where weights are read anyway, 1 where rows are
  // computed one by one. Before anything was measured: a guess.
  double row_share(std::int64_t rows) const;
  // What a row costs on average in such a forward; 0: too little was measured.
  double seconds_a_row(std::int64_t rows) const;

 private:
  // What a row more costs, and a row on average; 0: too little was measured.
  struct Line {
    double a_row = 0, average = 0;
  };
  Line line(std::int64_t rows) const;

  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_squared_ = 0, rows_seconds_ = 0;
};

// How often a source was right lately, a token at a time; tokens behind a wrong one say nothing and are not told.
class DraftChance {
 public:
  void observe(bool right);
  // `before`: of others, as so many tokens as kPriorTokens.
  double right(double before) const { return (right_ + kPriorTokens * before) / (tried_ + kPriorTokens); }

 private:
  static constexpr double kPriorTokens = 4;
  double tried_ = 0, right_ = 0;
};

}  // namespace lockstep
