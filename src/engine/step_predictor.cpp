#include "engine/step_predictor.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {

namespace {
constexpr double kOlderKept = 0.98, kWidestKept = 0.999;  // of older steps, with each new one
constexpr double kLeastMeasured = 4;                      // measured steps, from which on the sums are believed
// Terms that were never seen apart (a row and its token, in steps that decode alone) share what they cost together.
constexpr double kRidge = 1e-4;
// How far steps are over what was expected, on average of the last twenty or so, counted 0 where they are not; so many times that far are 19 of 20.
constexpr double kOverKept = 0.95, kOverTimes = 4;
}  // namespace

StepWork& StepWork::operator+=(const StepWork& more) {
  rows += more.rows;
  tokens += more.tokens;
  keys += more.keys;
  return *this;
}

StepWork& StepWork::operator-=(const StepWork& less) {
  rows -= less.rows;
  tokens -= less.tokens;
  keys -= less.keys;
  return *this;
}

double StepPredictor::middle(const StepWork& work) const {
  const Terms terms = terms_of(work);
  double seconds = 0;
  for (std::size_t i = 0; i < kTerms; ++i) seconds += costs_[i] * terms[i];
  return seconds;
}

double StepPredictor::seconds(const StepWork& work) const {
  if (weight_ < kLeastMeasured || work.rows > 2 * most_rows_) return std::numeric_limits<double>::infinity();
  return (1 + kOverTimes * over_) * middle(work);
}

void StepPredictor::observe(const StepWork& work, double seconds) {
  if (!(seconds > 0) || !(work.rows >= 1)) return;
  if (const double expected = middle(work); weight_ >= kLeastMeasured && expected > 0)
    over_ = kOverKept * over_ + (1 - kOverKept) * std::max(0.0, seconds / expected - 1);
  Terms terms = terms_of(work);
  for (double& term : terms) term /= seconds;
  for (std::size_t i = 0; i < kTerms; ++i) {
    sums_[i] = kOlderKept * sums_[i] + terms[i];
    for (std::size_t j = 0; j < kTerms; ++j) squares_[i][j] = kOlderKept * squares_[i][j] + terms[i] * terms[j];
  }
  weight_ = kOlderKept * weight_ + 1;
  most_rows_ = std::max(work.rows, kWidestKept * most_rows_);
  solve();
}

// Terms that would cost less than nothing are left out, the worst first.
void StepPredictor::solve() {
  std::array<bool, kTerms> used;
  for (std::size_t i = 0; i < kTerms; ++i) used[i] = squares_[i][i] > 0;
  while (solve_for(used)) {
    std::size_t worst = 0;
    double least = 0;
    for (std::size_t i = 0; i < kTerms; ++i)
      if (const double cost = costs_[i] * std::sqrt(squares_[i][i]); cost < least) least = cost, worst = i;
    if (least == 0) return;
    used[worst] = false;
  }
}

// By Cholesky, each term in units of its own size. False: none is used, or numbers are too far apart; costs stay.
bool StepPredictor::solve_for(const std::array<bool, kTerms>& used) {
  std::array<std::size_t, kTerms> term{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < kTerms; ++i)
    if (used[i]) term[n++] = i;
  std::array<Terms, kTerms> root{};
  Terms y{};
  const auto size = [&](std::size_t i) { return std::sqrt(squares_[term[i]][term[i]]); };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double left = i == j ? 1 + kRidge : squares_[term[i]][term[j]] / (size(i) * size(j));
      for (std::size_t k = 0; k < j; ++k) left -= root[i][k] * root[j][k];
      if (i != j) root[i][j] = left / root[j][j];
      else if (left > 0) root[i][i] = std::sqrt(left);
      else return false;
    }
    y[i] = sums_[term[i]] / size(i);
    for (std::size_t k = 0; k < i; ++k) y[i] -= root[i][k] * y[k];
    y[i] /= root[i][i];
  }
  costs_ = {};
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k) y[i] -= root[k][i] * y[k];
    y[i] /= root[i][i];
  }
  for (std::size_t i = 0; i < n; ++i) costs_[term[i]] = y[i] / size(i);
  return n > 0;
}

}  // namespace lockstep
