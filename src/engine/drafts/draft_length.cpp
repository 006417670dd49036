#include "engine/drafts/draft_length.h"

#include <algorithm>

namespace lockstep {

namespace {
constexpr double kCostsKept = 0.98, kChanceKept = 0.97;
// Of what a row costs on average. Weights are read once for all rows, so most of a small forward is not its rows'.
constexpr double kGuessedShare = 0.3;
constexpr double kLeastWeight = 4;  // measured forwards, from which on the line is believed
}  // namespace

void StepCosts::observe(std::int64_t rows, double seconds) {
  const auto n = static_cast<double>(rows);
  for (double* sum : {&weight_, &rows_, &seconds_, &rows_squared_, &rows_seconds_}) *sum *= kCostsKept;
  weight_ += 1;
  rows_ += n;
  seconds_ += seconds;
  rows_squared_ += n * n;
  rows_seconds_ += n * seconds;
}

StepCosts::Line StepCosts::line(std::int64_t rows) const {
  const double spread = weight_ * rows_squared_ - rows_ * rows_;
  if (weight_ < kLeastWeight || spread < 0.05 * rows_ * rows_ || seconds_ <= 0) return {};
  const double a_row = (weight_ * rows_seconds_ - rows_ * seconds_) / spread, fixed = (seconds_ - a_row * rows_) / weight_;
  return {a_row, std::max(fixed, 0.0) / static_cast<double>(std::max<std::int64_t>(rows, 1)) + a_row};
}

double StepCosts::row_share(std::int64_t rows) const {
  const Line of = line(rows);
  if (of.a_row == 0 && of.average == 0) return kGuessedShare;
  if (of.a_row <= 0 || of.average <= 0) return 0.02;
  return std::clamp(of.a_row / of.average, 0.02, 1.0);
}

double StepCosts::seconds_a_row(std::int64_t rows) const { return std::max(0.0, line(rows).average); }

void DraftChance::observe(bool right) {
  tried_ = tried_ * kChanceKept + 1;
  right_ = right_ * kChanceKept + (right ? 1 : 0);
}

}  // namespace lockstep
