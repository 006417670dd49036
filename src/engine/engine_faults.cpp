// Requests whose rows went wrong, and tokens that are taken back.

#include "base/error.h"
#include "engine/acceptance.h"
#include "engine/engine.h"
#include "engine/slice_results.h"

namespace lockstep {

void Engine::truncate(std::uint64_t id, std::size_t tokens) {
  auto it = sequences_.find(id);
  if (it == sequences_.end() || it->second->generation.tokens.size() <= tokens) return;
  if (it->second->under_way) {
    it->second->cut = it->second->prompt_length + static_cast<std::int64_t>(tokens);
    under_way_.settle();
    it = sequences_.find(id);
    if (it == sequences_.end()) return;  // a row of what stays went wrong
    it->second->cut = Sequence::kNotCut;
    it->second->constraint_error.clear();  // of a place that is no more
  }
  Sequence& s = *it->second;
  untold_.forget(s, s.generation.tokens.size() - tokens);
  if (s.drafting) s.drafting->end_cycle();
  if (const FinishReason end = truncate_tokens(s, tokens); end != FinishReason::none) {
    finish(s, end);
    return deliver();
  }
  scheduler_->truncate(s, steps_->has_mtp());
}

// Ends the requests that have a flagged row, and those that read a page which such a row wrote: the same tokens in the
// same order, so they would have flagged it themselves. One whose text was cut back before that row goes on.
void Engine::fail_flagged(const std::vector<PlannedSlice>& plan, const std::vector<RowFault>& read) {
  PageFaults bad_pages;
  std::vector<RowFault> faults(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlannedSlice& p = plan[i];
    // Rows behind a wrong guess say nothing of the request.
    const std::span<const StepResult::Sampled> sampled = result_.sampled(i);
    const std::span<const std::int32_t> flags = result_.flags(i, p.count - p.drafted + right_guesses(p, sampled)), rows = wants_.of(i, Column::sampled).rows;
    for (std::size_t row = 0; row < flags.size(); ++row) {
      if (flags[row] == 0) continue;
      const std::int64_t at = p.begin + static_cast<std::int64_t>(row);
      const RowFault fault{at, flags[row]};
      if (faults[i].flags == 0) faults[i] = fault;
      bad_pages.emplace(p.sequence->pages[static_cast<std::size_t>(at / options_.page_size)], fault);
    }
    // What was sampled behind a cut is not taken, and a constraint that allows nothing there says nothing of the text that stays.
    if (p.sequence->cut != Sequence::kNotCut) continue;
    for (std::size_t row = 0; row < sampled.size() && rows[row] < static_cast<std::int32_t>(flags.size()); ++row)
      if (sampled[row].flags != 0 && (faults[i].flags == 0 || p.begin + rows[row] < faults[i].position)) faults[i] = {p.begin + rows[row], sampled[row].flags};
  }
  for (std::size_t i = 0; i < plan.size(); ++i) {
    for (std::int32_t page : plan[i].sequence->pages)
      if (const auto bad = bad_pages.find(page); bad != bad_pages.end()) faults[i].join(bad->second);
    if (!read.empty()) faults[i].join(read[i]);
  }
  under_way_.read_faults(bad_pages);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (faults[i].flags == 0) continue;
    Sequence& s = *plan[i].sequence;
    if (faults[i].position >= s.cut) {  // says nothing of the text that stays, which is computed again in pages without it
      scheduler_->preempt(s, faults[i].position);
      continue;
    }
    // What the rows before it have computed is told, as if it had been done one by one.
    if (faults[i].position >= plan[i].begin + plan[i].count - plan[i].drafted) take_scores(s, plan[i].begin, i, result_);
    if (const FinishReason end = accept(plan[i], i, faults[i].position - plan[i].begin); end != FinishReason::none) {
      finish(s, end);
      continue;
    }
    s.generation.error = describe_fault(s, faults[i].flags, faults[i].position);
    finish(s, FinishReason::error, faults[i].position);
  }
}

}  // namespace lockstep
