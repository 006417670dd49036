// Predicts how long a step of an engine will take. The model is linear: a constant, and a cost per row, per sampled token and per key that
// attention reads, each at least 0, fitted by least squares to about the last hundred steps. Errors are relative, so that a step of 5 ms is
// predicted as well as one of 500 ms. Knows no engine and no clock. Used by one thread at a time.
//   StepPredictor steps; steps.observe({.rows = 8, .tokens = 8, .keys = 900}, 0.012); ... steps.seconds({.rows = 9, .tokens = 9, .keys = 1000})
#pragma once
#include <array>
#include <cstddef>

namespace lockstep {

struct StepWork {
  double rows = 0;    // of the forward
  double tokens = 0;  // rows that a token is sampled from
  double keys = 0;    // that its rows see: of a row at position p, p + 1
  StepWork& operator+=(const StepWork& more);
  StepWork& operator-=(const StepWork& less);
};

class StepPredictor {
 public:
  // Adds a measured step of at least one row.
  void observe(const StepWork& work, double seconds);
  // The seconds that about 19 of 20 such steps stay below. Infinite where too little was measured, or no step of half as many rows.
  double seconds(const StepWork& work) const;

 private:
  static constexpr std::size_t kTerms = 4;  // a step, a row, a token, a key
  using Terms = std::array<double, kTerms>;
  static Terms terms_of(const StepWork& work) { return {1, work.rows, work.tokens, work.keys}; }
  double middle(const StepWork& work) const;
  void solve();
  bool solve_for(const std::array<bool, kTerms>& used);

  std::array<Terms, kTerms> squares_{};  // sums of products of terms, over the seconds
  Terms sums_{}, costs_{};               // of terms over the seconds; seconds of one of each
  double weight_ = 0;                    // measured steps, older ones fading
  double most_rows_ = 0;                 // of a step, lately
  double over_ = 0;                      // how far steps were over what was expected, as a fraction
};

}  // namespace lockstep
