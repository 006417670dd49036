#include "engine/live_room.h"

#include <algorithm>

namespace lockstep {

namespace {
StepWork work_of(const RowSpan& rows) {
  const auto n = static_cast<double>(rows.count);
  return {.rows = n, .tokens = static_cast<double>(rows.tokens), .keys = n * static_cast<double>(rows.begin) + n * (n + 1) / 2};
}
}  // namespace

void LiveRoom::begin(bool live) {
  if (other_rows_ > 0) steps_without_ = 0;
  else if (holds_back_) steps_without_ = std::min(steps_without_ + 1, kWaits);
  steps_after_ = live ? 0 : std::min(steps_after_ + 1, kStepsAfter);
  guesses_before_ = live_guesses_;
  live_guesses_ = {};
  work_ = prompts_ = live_prompts_ = {};
  live_rows_ = other_rows_ = 0;
  holds_back_ = false;
}

// The most rows whose span, with the work beside it, keeps the step within so long.
template <class F>
std::int64_t LiveRoom::most(std::int64_t wanted, const StepWork& beside, double seconds, const F& span) const {
  const auto fits = [&](std::int64_t count) {
    StepWork work = beside;
    work += work_of(span(count));
    return predictor_.seconds(work) <= seconds;
  };
  if (fits(wanted)) return wanted;
  std::int64_t low = 0, high = wanted;  // so many fit; so many do not
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

std::int64_t LiveRoom::rows(std::int64_t begin, std::int64_t wanted, std::int64_t pending) {
  if (!on() || steps_after_ >= kStepsAfter) return wanted;
  StepWork beside = work_;
  beside += guesses_before_;
  const std::int64_t fit = most(wanted, beside, most_seconds_, [&](std::int64_t count) { return RowSpan{begin, count, count == pending ? 1 : 0}; });
  // A step without live rows has one row whatever it takes.
  std::int64_t least = live_rows_ == 0 ? 1 : 0;
  if (steps_without_ >= kWaits - 1) least = std::max<std::int64_t>(1, live_rows_ / kLiveRows);
  const std::int64_t given = std::min(wanted, std::max(fit, least - other_rows_));
  holds_back_ = holds_back_ || given < wanted;
  return given;
}

// Where nothing was measured yet, both sides are infinite, and there is no limit.
std::int64_t LiveRoom::prompt_rows(std::int64_t begin, std::int64_t wanted, std::int64_t pending) const {
  if (on() || steps_after_ >= kStepsAfter || wanted == 0) return wanted;
  StepWork without = work_;
  without -= prompts_;
  const std::int64_t fit = most(wanted, work_, predictor_.seconds(without) + kPromptSeconds, [&](std::int64_t count) {
    return RowSpan{begin, count, count == pending ? 1 : 0};
  });
  return std::min(wanted, std::max(fit, kLeastPromptRows - static_cast<std::int64_t>(prompts_.rows)));
}

std::int64_t LiveRoom::live_prompt_rows(std::int64_t begin, std::int64_t wanted, std::int64_t pending) const {
  const auto prompts = static_cast<std::int64_t>(live_prompts_.rows);
  if (live_rows_ == prompts || wanted == 0) return wanted;
  StepWork without = work_;
  without -= prompts_;
  without -= live_prompts_;
  const std::int64_t fit = most(wanted, work_, (1 + kLivePromptShare) * predictor_.seconds(without), [&](std::int64_t count) {
    return RowSpan{begin, count, count == pending ? 1 : 0};
  });
  return std::min(wanted, std::max(fit, kLeastPromptRows - prompts));
}

std::int64_t LiveRoom::guessed_rows(std::int64_t begin, std::int64_t wanted) const {
  if (!on() || steps_after_ >= kStepsAfter) return wanted;
  return most(wanted, work_, most_seconds_, [&](std::int64_t count) { return RowSpan{begin, count, count}; });
}

void LiveRoom::take(const RowSpan& rows, bool live, bool prompt) {
  work_ += work_of(rows);
  if (prompt) (live ? live_prompts_ : prompts_) += work_of(rows);
  if (live) steps_after_ = 0;
  (live ? live_rows_ : other_rows_) += rows.count;
}

void LiveRoom::take_guesses(const RowSpan& rows, bool live) {
  take(rows, live);
  if (live) live_guesses_ += work_of(rows);
}

void LiveRoom::put_back(const RowSpan& rows, bool live, bool prompt) {
  work_ -= work_of(rows);
  if (prompt) (live ? live_prompts_ : prompts_) -= work_of(rows);
  (live ? live_rows_ : other_rows_) -= rows.count;
}

}  // namespace lockstep
