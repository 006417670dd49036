#include "engine/row_budget.h"

#include <algorithm>

namespace lockstep {

namespace {
RowSpan span_of(const PlannedSlice& p) { return {p.begin, p.count, p.last ? 1 + p.drafted : 0}; }
}  // namespace

void RowBudget::begin(bool live) {
  left_ = most_;
  room_.begin(live);
}

std::int64_t RowBudget::wanted(const Sequence& s) const {
  const std::int64_t pending = s.pending() > 1 && s.begins_layer_cycle() ? s.pending() - 1 : s.pending();
  return std::min(pending, s.pace.rows > 0 ? s.pace.rows : chunk_);
}

bool RowBudget::decodes(const Sequence& s) const { return s.computed >= (s.pace.decodes ? 1 : s.prompt_length) && wanted(s) == 1; }

std::int64_t RowBudget::of(const Sequence& s) {
  std::int64_t rows = std::min(wanted(s), left_);
  if (is_live(s)) {
    const bool long_prompt = s.account && s.pace.rows == 0 && s.known() - s.begin > chunk_ && !decodes(s);
    return long_prompt ? room_.live_prompt_rows(s.computed, rows, s.pending()) : rows;
  }
  if (!decodes(s)) rows = room_.prompt_rows(s.computed, rows, s.pending());
  return room_.rows(s.computed, rows, s.pending());
}

std::int64_t RowBudget::of_guesses(const PlannedSlice& p, std::int64_t rows) const {
  rows = std::min(rows, left_);
  return is_live(*p.sequence) ? rows : room_.guessed_rows(p.begin + p.count, rows);
}

void RowBudget::take(const PlannedSlice& p) {
  left_ -= p.count;
  room_.take(span_of(p), is_live(*p.sequence), !p.decode);
}

void RowBudget::put_back(const PlannedSlice& p) {
  left_ += p.count;
  room_.put_back(span_of(p), is_live(*p.sequence), !p.decode);
}

void RowBudget::take_guesses(const PlannedSlice& p, std::int64_t rows) {
  left_ -= rows;
  room_.take_guesses({p.begin + p.count, rows, rows}, is_live(*p.sequence));
}

}  // namespace lockstep
