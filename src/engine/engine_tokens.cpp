// What a step tells, taken to the requests: scores and pooled states, tokens that are accepted and taken back, faults.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/acceptance.h"
#include "engine/engine.h"
#include "engine/slice_results.h"

namespace lockstep {

namespace {
constexpr std::int32_t kNothingAllowed = 1 << 4;

std::string describe_fault(const Sequence& s, std::int32_t flags, std::int64_t position) {
  if (flags == kNothingAllowed && !s.constraint_error.empty())
    return fmt::format("the constraint failed at token {}: {}", s.generation.tokens.size(), s.constraint_error);
  if (flags == kNothingAllowed) return fmt::format("the constraint allows no token after {} generated ones", s.generation.tokens.size());
  constexpr std::string_view places[] = {"the indexer's scores", "the router's scores", "a log-probability", "the logits"};
  std::string text;
  for (int bit = 0; bit < 4; ++bit)
    if (flags & 1 << bit) text += (text.empty() ? "" : ", ") + std::string(places[bit]);
  if (text.empty()) text = fmt::format("flags {}", flags);
  return fmt::format("a NaN or an infinity in {} at position {} of the request", text, position);
}
}  // namespace

void Engine::absorb(const std::vector<PlannedSlice>& plan) {
  const bool flagged = std::any_of(result_.row_flags.begin(), result_.row_flags.end(), [](std::int32_t f) { return f != 0; }) ||
                       std::any_of(result_.all_sampled.begin(), result_.all_sampled.end(), [](const auto& s) { return s.flags != 0; });
  if (flagged) fail_flagged(plan);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlannedSlice& p = plan[i];
    Sequence& s = *p.sequence;
    if (s.generation.finish != FinishReason::none) continue;  // failed just now
    take_scores(s, p.begin, i, result_);
    if (const std::span<const float> rows = result_.hidden(i); !rows.empty()) pool_hidden(s, rows, p.begin + p.count, runtime_.model->facts().hidden);
    if (!wants_.of(i, Column::sampled).empty()) {
      const FinishReason end = accept(p, i, p.count);
      scheduler_->commit(p);
      if (end != FinishReason::none) finish(s, end);
      continue;
    }
    scheduler_->commit(p);
    if (p.last) {
      finish(s, pooled_soundly(s) ? FinishReason::length : FinishReason::error);
    }
  }
}

FinishReason Engine::accept(const PlannedSlice& p, std::size_t slice, std::int64_t row) {
  Sequence& s = *p.sequence;
  const std::int64_t right = right_guesses(p, result_.sampled(slice)), first = p.count - 1 - p.drafted;
  std::vector<GeneratedToken> tokens;
  if (!wants_.of(slice, Column::sampled).empty())
    for (std::int64_t i = 0; i <= right && first + i < row; ++i) tokens.push_back(sampled_token(s, slice, static_cast<std::size_t>(i)));
  const std::vector<GeneratedToken>& said = s.generation.tokens;
  const std::size_t before = said.size();
  const FinishReason end = accept_tokens(s, tokens);
  guesses_.accept(p, right, static_cast<std::int64_t>(said.size() - before));
  if (before == 0 && !said.empty()) s.generation.times.first_token = std::chrono::steady_clock::now();
  for (std::size_t i = before; i < said.size(); ++i) untold_.add(s, said[i]);
  return end;
}

GeneratedToken Engine::sampled_token(const Sequence& s, std::size_t slice, std::size_t i) {
  const StepResult::Sampled& sampled = result_.sampled(slice)[i];
  const std::uint64_t version = s.adapter ? s.adapter->version : s.weights ? s.weights->version : version_;
  GeneratedToken token{sampled.token, sampled.raw_logprob, sampled.sampling_logprob, version, {}, {}, {}, s.mixed_versions};
  if (tells_top(s)) token.top = std::move(result_.sampled_top(slice)[i]);
  if (s.tells_experts) {  // of the same row
    const std::span<const std::int32_t> rows = wants_.of(slice, Column::experts).rows;
    const auto at = std::lower_bound(rows.begin(), rows.end(), wants_.of(slice, Column::sampled).rows[i]) - rows.begin();
    token.experts = std::move(result_.experts(slice)[static_cast<std::size_t>(at)]);
  }
  if (s.tells_kept) {
    const std::span<const std::int32_t> rows = wants_.of(slice, Column::kept).rows;
    const auto at = std::lower_bound(rows.begin(), rows.end(), wants_.of(slice, Column::sampled).rows[i]) - rows.begin();
    token.kept = std::move(result_.kept(slice)[static_cast<std::size_t>(at)]);
  }
  return token;
}

void Engine::truncate(std::uint64_t id, std::size_t tokens) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end() || it->second->generation.tokens.size() <= tokens) return;
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
// same order, so they would have flagged it themselves.
void Engine::fail_flagged(const std::vector<PlannedSlice>& plan) {
  struct Fault {
    std::int64_t position = -1;
    std::int32_t flags = 0;
  };
  std::unordered_map<std::int32_t, Fault> bad_pages;
  std::vector<Fault> faults(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const PlannedSlice& p = plan[i];
    // Rows behind a wrong guess say nothing of the request.
    const std::span<const StepResult::Sampled> sampled = result_.sampled(i);
    const std::span<const std::int32_t> flags = result_.flags(i, p.count - p.drafted + right_guesses(p, sampled)), rows = wants_.of(i, Column::sampled).rows;
    for (std::size_t row = 0; row < flags.size(); ++row) {
      if (flags[row] == 0) continue;
      const std::int64_t at = p.begin + static_cast<std::int64_t>(row);
      const Fault fault{at, flags[row]};
      if (faults[i].flags == 0) faults[i] = fault;
      bad_pages.emplace(p.sequence->pages[static_cast<std::size_t>(at / options_.page_size)], fault);
    }
    for (std::size_t row = 0; row < sampled.size() && rows[row] < static_cast<std::int32_t>(flags.size()); ++row)
      if (sampled[row].flags != 0 && (faults[i].flags == 0 || p.begin + rows[row] < faults[i].position)) faults[i] = {p.begin + rows[row], sampled[row].flags};
  }
  for (std::size_t i = 0; i < plan.size(); ++i)
    for (std::int32_t page : plan[i].sequence->pages) {
      const auto bad = bad_pages.find(page);
      if (bad != bad_pages.end() && (faults[i].flags == 0 || bad->second.position < faults[i].position)) faults[i] = bad->second;
    }
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (faults[i].flags == 0) continue;
    Sequence& s = *plan[i].sequence;
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
