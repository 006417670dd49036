// How many guesses pay. A forward of n rows takes about a + b n seconds, and n requests get n tokens from it; one more row is worth b seconds
// where the chance that its token is right, times what a token takes now, is more. Chances are counted for each source and request, costs for
// the engine, both with older ones fading. Times come from a clock, so lengths differ between runs; bits do not. Used by one thread at a time.
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
