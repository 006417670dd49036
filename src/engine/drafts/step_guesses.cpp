#include "engine/drafts/step_guesses.h"

#include <algorithm>
#include <chrono>

#include "base/seconds.h"

namespace lockstep {

namespace {
// Guesses behind the texts, as long as it lives.
class ShownGuesses {
 public:
  explicit ShownGuesses(const std::vector<PlannedSlice>& plan) : plan_(plan) {
    for (const PlannedSlice& p : plan_)
      for (std::int64_t i = 0; i < p.drafted; ++i) p.sequence->tokens.push_back(p.sequence->drafting->guess[static_cast<std::size_t>(i)].token);
  }
  ~ShownGuesses() {
    for (const PlannedSlice& p : plan_) p.sequence->tokens.resize(p.sequence->tokens.size() - static_cast<std::size_t>(p.drafted));
  }
  ShownGuesses(const ShownGuesses&) = delete;
  ShownGuesses& operator=(const ShownGuesses&) = delete;

 private:
  const std::vector<PlannedSlice>& plan_;
};
}  // namespace

void StepGuesses::propose(const std::vector<PlannedSlice>& plan, Scheduler& scheduler) {
  std::int64_t rows = 0, open = 0;
  const auto may = [](const PlannedSlice& p) { return p.last && p.sequence->drafting; };
  for (const PlannedSlice& p : plan) {
    rows += p.count;
    open += may(p);
  }
  for (std::size_t i = 0; i < plan.size() && open > 0; ++i) {
    if (!may(plan[i])) continue;
    Sequence& s = *plan[i].sequence;
    const std::int64_t left = scheduler.rows_left();
    drafter_.guess(s, left == 0 ? 0 : std::max<std::int64_t>(1, left / open), rows);
    --open;
    s.drafting->guess.resize(static_cast<std::size_t>(scheduler.extend(i, static_cast<std::int64_t>(s.drafting->guess.size()))));
  }
}

void StepGuesses::run(const std::vector<PlannedSlice>& plan, const std::function<void()>& forward) {
  const auto began = std::chrono::steady_clock::now();
  {
    const ShownGuesses shown(plan);
    forward();
  }
  std::int64_t rows = 0;
  bool decoding = true;
  for (const PlannedSlice& p : plan) {
    rows += p.count;
    decoding = decoding && p.decode;
  }
  if (decoding) drafter_.observe(rows, seconds_since(began));
}

void StepGuesses::accept(const PlannedSlice& p, std::int64_t right) {
  if (p.drafted > 0) drafter_.learn(*p.sequence, p.drafted, right);
}

std::int64_t right_guesses(const PlannedSlice& p, std::span<const StepResult::Sampled> sampled) {
  std::int64_t right = 0;
  while (right < p.drafted && sampled[static_cast<std::size_t>(right)].flags == 0 &&
         sampled[static_cast<std::size_t>(right)].token == p.sequence->drafting->guess[static_cast<std::size_t>(right)].token)
    ++right;
  return right;
}

}  // namespace lockstep
