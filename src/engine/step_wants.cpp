#include "engine/step_wants.h"

#include <algorithm>

namespace lockstep {

void StepWants::begin(const std::vector<PlannedSlice>& plan) {
  for (Table& t : tables_) {
    t.rows.clear();
    t.ends.clear();
    t.cells = t.width = t.widest = 0;
  }
  row_begin_.clear();
  std::int64_t row = 0;
  for (const PlannedSlice& p : plan) {
    row_begin_.push_back(row);
    row += p.count;
  }
}

void StepWants::want(Column column, std::int64_t row, std::int64_t width) {
  Table& t = table(column);
  t.rows.push_back(static_cast<std::int32_t>(row));
  t.cells += width;
  t.width = width;
  t.widest = std::max(t.widest, width);
}

void StepWants::end_slice() {
  for (Table& t : tables_) {
    t.ends.push_back({static_cast<std::int64_t>(t.rows.size()), t.cells, t.width});
    t.width = 0;
  }
}

StepWants::Rows StepWants::of(std::size_t slice, Column column) const {
  const Table& t = table(column);
  const End before = slice > 0 ? t.ends[slice - 1] : End();
  const auto count = static_cast<std::size_t>(t.ends[slice].rows - before.rows);
  return {std::span<const std::int32_t>(t.rows).subspan(static_cast<std::size_t>(before.rows), count), before.rows, before.cells, t.ends[slice].width};
}

namespace {
// Rows of a slice, from its first on, whose next token is one of the prompt and whose log-probability is asked for.
std::int64_t prompt_rows(const PlannedSlice& p) {
  if (!p.sequence->scores_prompt) return 0;
  return std::max<std::int64_t>(0, std::min(p.begin + p.count, p.sequence->prompt_length - 1) - p.begin);
}
// Rows at the end of a slice whose hidden states are pooled.
std::int64_t pooled_rows(const PlannedSlice& p) {
  const Pooling pooling = p.sequence->pooling;
  return pooling == Pooling::mean ? p.count : pooling == Pooling::last && p.last ? 1 : 0;
}
}  // namespace

void want_as_asked(const std::vector<PlannedSlice>& plan, std::int64_t experts, std::int64_t vocabulary, StepWants& wants) {
  wants.begin(plan);
  for (const PlannedSlice& p : plan) {
    const Sequence& s = *p.sequence;
    for (std::int64_t row = 0, scored = prompt_rows(p); row < scored; ++row) {
      wants.want(Column::scored, row, scored_columns(s));
      if (tells_top(s)) wants.want(Column::scored_top, row, s.sampling.top_logprobs);
      if (s.prompt_draws > 0) wants.want(Column::drawn, row, s.prompt_draws);
      if (s.tells_experts) wants.want(Column::experts, row, experts);
    }
    const std::int64_t last = p.count - 1 - p.drafted;
    for (std::int64_t row = last; p.last && s.sampling.max_tokens > 0 && row < p.count; ++row) {
      wants.want(Column::sampled, row);
      if (tells_top(s)) wants.want(Column::sampled_top, row, s.sampling.top_logprobs);
      if (s.tells_experts) wants.want(Column::experts, row, experts);
      if (s.tells_kept) wants.want(Column::kept, row, kept_columns(vocabulary));
    }
    for (std::int64_t row = p.count - pooled_rows(p); row < p.count; ++row) wants.want(Column::hidden, row);
    wants.end_slice();
  }
}

}  // namespace lockstep
