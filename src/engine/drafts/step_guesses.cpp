#include "engine/drafts/step_guesses.h"

#include <algorithm>
#include <chrono>

#include "base/seconds.h"

namespace lockstep {

namespace {
// Guesses behind the texts, as long as it lives.
class ShownGuesses {
 public:
  explicit ShownGuesses(const std::vector<PlannedSlice>& plan) : plan_(plan) { show_guesses(plan_); }
  ~ShownGuesses() { hide_guesses(plan_); }
  ShownGuesses(const ShownGuesses&) = delete;
  ShownGuesses& operator=(const ShownGuesses&) = delete;

 private:
  const std::vector<PlannedSlice>& plan_;
};

bool may_guess(const PlannedSlice& p) { return p.last && p.sequence->drafting; }
}  // namespace

void show_guesses(const std::vector<PlannedSlice>& plan) {
  for (const PlannedSlice& p : plan)
    for (std::int64_t i = 0; i < p.drafted; ++i) p.sequence->tokens.push_back(p.sequence->drafting->guess[static_cast<std::size_t>(i)].token);
}

void hide_guesses(const std::vector<PlannedSlice>& plan) {
  for (const PlannedSlice& p : plan) p.sequence->tokens.resize(p.sequence->tokens.size() - static_cast<std::size_t>(p.drafted));
}

void StepGuesses::set_layer(AskLayer ask, std::int64_t positions) {
  ask_layer_ = std::move(ask);
  positions_ = positions;
  drafter_.set_layer();
}

// All at once, as many tokens of each as the longest guess has; what is too much is not used.
void StepGuesses::ask_layer(const std::vector<PlannedSlice>& plan, std::int64_t rows) {
  asked_.clear();
  std::int64_t tokens = 0;
  for (const PlannedSlice& p : plan) {
    if (!may_guess(p)) continue;
    Sequence& s = *p.sequence;
    s.drafting->layer_says.clear();
    s.drafting->layer_laws.clear();
    if (s.drafting->in_cycle) continue;
    // Its last token is the one row to come, so that the state of the token before it stands in the cache; pages that it was admitted with may be filled
    // in this very forward.
    if (p.count != 1 || s.computed <= s.begin || s.known() + DraftOptions::kMostTokens > positions_) continue;
    const std::int64_t wanted = drafter_.wants_layer(s, rows);
    if (wanted == 0) continue;
    tokens = std::max(tokens, wanted);
    asked_.push_back(&s);
  }
  if (asked_.empty()) return;
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::vector<std::int32_t>> said = ask_layer_(asked_, tokens);
  drafter_.observe_layer(static_cast<std::int64_t>(asked_.size()) * tokens, seconds_since(began));
  for (std::size_t i = 0; i < asked_.size(); ++i) asked_[i]->drafting->layer_says = std::move(said[i]);
}

void StepGuesses::propose(const std::vector<PlannedSlice>& plan, Scheduler& scheduler) {
  std::int64_t rows = 0, open = 0;
  for (const PlannedSlice& p : plan) {
    rows += p.count;
    open += may_guess(p);
  }
  if (ask_layer_ && open > 0) ask_layer(plan, rows);
  for (std::size_t i = 0; i < plan.size() && open > 0; ++i) {
    if (!may_guess(plan[i])) continue;
    Sequence& s = *plan[i].sequence;
    const std::int64_t left = scheduler.rows_left();
    const std::int64_t room = left == 0 ? 0 : std::max<std::int64_t>(1, left / open);
    --open;
    if (Drafting& d = *s.drafting; d.rejects) {  // its length is fixed; rows that there is no room for come in later steps
      if (d.in_cycle) drafter_.go_on(s);
      else drafter_.guess(s, DraftOptions::kMostTokens, rows);
      d.in_cycle = true;
      scheduler.extend(i, std::min(room, d.guess_rows()));
      continue;
    }
    drafter_.guess(s, room, rows);
    s.drafting->guess.resize(static_cast<std::size_t>(scheduler.extend(i, static_cast<std::int64_t>(s.drafting->guess.size()))));
  }
}

void StepGuesses::run(const std::vector<PlannedSlice>& plan, const std::function<void()>& forward) {
  const auto began = std::chrono::steady_clock::now();
  {
    const ShownGuesses shown(plan);
    forward();
  }
  observe(plan, seconds_since(began));
}

void StepGuesses::observe(const std::vector<PlannedSlice>& plan, double seconds) {
  std::int64_t rows = 0;
  bool decoding = true;
  for (const PlannedSlice& p : plan) {
    rows += p.count;
    decoding = decoding && p.decode;
  }
  if (decoding) drafter_.observe(rows, seconds);
}

void StepGuesses::accept(const PlannedSlice& p, std::int64_t right, std::int64_t said) {
  Sequence& s = *p.sequence;
  if (!s.drafting || !s.drafting->rejects) {
    if (p.drafted > 0) drafter_.learn(s, p.drafted, std::min(right, said));
    return;
  }
  Drafting& d = *s.drafting;
  const auto guesses = static_cast<std::int64_t>(d.guess.size()), checked = std::min(guesses, p.drafted + 1);
  const std::vector<GeneratedToken>& tokens = s.generation.tokens;
  std::int64_t taken = 0;
  while (taken < std::min(said, checked) && tokens[tokens.size() - static_cast<std::size_t>(said - taken)].id == d.guess[static_cast<std::size_t>(taken)].token)
    ++taken;
  if (checked > 0) drafter_.learn(s, checked, taken);
  if (taken < said) d.end_cycle();
  else d.guess.erase(d.guess.begin(), d.guess.begin() + static_cast<std::ptrdiff_t>(taken));
}

std::int64_t right_guesses(const PlannedSlice& p, std::span<const StepResult::Sampled> sampled) {
  std::int64_t right = 0;
  while (right < p.drafted && sampled[static_cast<std::size_t>(right)].flags == 0 &&
         sampled[static_cast<std::size_t>(right)].token == p.sequence->drafting->guess[static_cast<std::size_t>(right)].token)
    ++right;
  return right;
}

}  // namespace lockstep
