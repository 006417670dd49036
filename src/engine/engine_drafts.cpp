// Guesses at what requests say next: rows of a step behind the last known token, and what becomes of their samples.
#include <algorithm>
#include <chrono>

#include "base/seconds.h"
#include "engine/acceptance.h"
#include "engine/constraint_masks.h"
#include "engine/engine.h"

namespace lockstep {

// Room that the forward has left is shared alike.
void Engine::guess(const std::vector<PlannedSlice>& plan) {
  std::int64_t rows = 0, open = 0;
  const auto may = [](const PlannedSlice& p) { return p.last && p.sequence->drafting; };
  for (const PlannedSlice& p : plan) {
    rows += p.count;
    open += may(p);
  }
  for (std::size_t i = 0; i < plan.size() && open > 0; ++i) {
    if (!may(plan[i])) continue;
    Sequence& s = *plan[i].sequence;
    const std::int64_t left = scheduler_->rows_left();
    drafter_.guess(s, left == 0 ? 0 : std::max<std::int64_t>(1, left / open), rows);
    --open;
    s.drafting->guess.resize(static_cast<std::size_t>(scheduler_->extend(i, static_cast<std::int64_t>(s.drafting->guess.size()))));
  }
}

void Engine::ask_constraints(const std::vector<PlannedSlice>& plan) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    Sequence& s = *plan[i].sequence;
    if (s.sampling.constraint && plan[i].drafted == 0 && !wants_.of(i, Column::sampled).empty()) ask_mask(s, limits_.vocabulary);
  }
}

void Engine::show_guesses(const std::vector<PlannedSlice>& plan) {
  for (const PlannedSlice& p : plan)
    for (std::int64_t i = 0; i < p.drafted; ++i) p.sequence->tokens.push_back(p.sequence->drafting->guess[static_cast<std::size_t>(i)].token);
}

void Engine::hide_guesses(const std::vector<PlannedSlice>& plan) {
  for (const PlannedSlice& p : plan) p.sequence->tokens.resize(p.sequence->tokens.size() - static_cast<std::size_t>(p.drafted));
}

void Engine::run(const std::vector<PlannedSlice>& plan) {
  show_guesses(plan);
  const auto began = std::chrono::steady_clock::now();
  try {
    steps_->run(plan, wants_, result_);
  } catch (...) {
    hide_guesses(plan);
    throw;
  }
  hide_guesses(plan);
  std::int64_t rows = 0;
  bool decoding = true;
  for (const PlannedSlice& p : plan) {
    rows += p.count;
    decoding = decoding && p.decode;
  }
  if (decoding) drafter_.observe(rows, seconds_since(began));
}

// Of a slice's guesses, those before the first one that is not what its row's neighbour sampled.
std::int64_t Engine::right_guesses(const PlannedSlice& p, std::size_t slice) const {
  if (p.drafted == 0) return 0;
  const std::span<const StepResult::Sampled> sampled = result_.sampled(slice);
  std::int64_t right = 0;
  while (right < p.drafted && sampled[static_cast<std::size_t>(right)].flags == 0 &&
         sampled[static_cast<std::size_t>(right)].token == p.sequence->drafting->guess[static_cast<std::size_t>(right)].token)
    ++right;
  return right;
}

FinishReason Engine::accept(const PlannedSlice& p, std::size_t slice, std::int64_t row) {
  Sequence& s = *p.sequence;
  const std::int64_t right = right_guesses(p, slice), first = p.count - 1 - p.drafted;
  std::vector<GeneratedToken> tokens;
  if (!wants_.of(slice, Column::sampled).empty())
    for (std::int64_t i = 0; i <= right && first + i < row; ++i) tokens.push_back(sampled_token(s, slice, static_cast<std::size_t>(i)));
  const std::vector<GeneratedToken>& said = s.generation.tokens;
  const std::size_t before = said.size();
  const FinishReason end = accept_tokens(s, tokens);
  if (p.drafted > 0) drafter_.learn(s, p.drafted, std::min(right, static_cast<std::int64_t>(said.size() - before)));
  if (before == 0 && !said.empty()) s.generation.times.first_token = std::chrono::steady_clock::now();
  for (std::size_t i = before; i < said.size(); ++i) {
    ++counters_.sampled_tokens;
    counters_.mixed_version_tokens += s.mixed_versions;
    if (s.on_token) events_.push_back({&s, said[i], nullptr});
  }
  counters_.drafts = drafter_.counters();
  return end;
}

// Of the tokens that were not told yet, the last ones, at most so many, are never told. Returns how many; they still stand in what is said.
std::size_t Engine::forget_untold(const Sequence& s, std::size_t most) {
  std::size_t dropped = 0;
  for (std::size_t i = events_.size(); i-- > 0 && dropped < most;) {
    if (events_[i].sequence != &s || events_[i].done) continue;
    events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(i));
    ++dropped;
  }
  counters_.sampled_tokens -= static_cast<std::int64_t>(dropped);
  counters_.mixed_version_tokens -= s.mixed_versions ? static_cast<std::int64_t>(dropped) : 0;
  return dropped;
}

// For one that ends: what was not told is not said. False: everything was told.
bool Engine::drop_untold(Sequence& s) {
  const std::size_t dropped = forget_untold(s, s.generation.tokens.size());
  s.generation.tokens.resize(s.generation.tokens.size() - dropped);
  s.tokens.resize(static_cast<std::size_t>(s.accepted()));
  return dropped > 0;
}

// Of a request that has come to its end, which nobody was told yet.
void Engine::cancel_untold(std::uint64_t id) {
  const auto end = std::find_if(events_.begin(), events_.end(), [id](const Event& event) { return event.done && event.done->id == id; });
  if (end == events_.end()) return;
  Generation& g = end->done->generation;
  if (!drop_untold(*end->done)) return;
  g.finish = FinishReason::cancelled;
  g.error.clear();
}

}  // namespace lockstep
