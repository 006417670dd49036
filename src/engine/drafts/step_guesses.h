// Speculative decoding within a step: adds rows of guessed tokens behind the last token of each request that allows it, and accepts the sampled tokens up
// to the first wrong guess. Answers have the same bits without it, except under rejection sampling, where every round has all its guesses however few
// rows are left. Used by one thread at a time.
//   guesses.propose(plan, scheduler); guesses.run(plan, forward); guesses.accept(p, right_guesses(p, result.sampled(slice)), said);
#pragma once
#include <functional>

#include "engine/drafts/drafter.h"
#include "engine/step_result.h"

namespace lockstep {

class StepGuesses {
 public:
  // What the model's layer of multi-token prediction says of these sequences, each so many tokens or fewer (engine/drafts/mtp_steps.h).
  using AskLayer = std::function<std::vector<std::vector<std::int32_t>>(std::span<Sequence* const> sequences, std::int64_t tokens)>;

  StepGuesses(const DraftOptions& options, std::int64_t vocabulary) : drafter_(options, vocabulary) {}
  // The model has such a layer. It is asked of sequences that decode and are this far from `positions`: RoPE turns ahead.
  void set_layer(AskLayer ask, std::int64_t positions);
  // Takes what the request brings for its guesses.
  void begin(Sequence& s, Request& request) { drafter_.begin(s, request); }
  // It says no more.
  void end(Sequence& s) { drafter_.end(s); }

  // Rows of guessed tokens behind slices of the scheduler's plan at whose end a token is sampled. Room that the forward has left is shared alike.
  void propose(const std::vector<PlannedSlice>& plan, Scheduler& scheduler);
  // While the forward runs the guesses stand behind the texts of their requests. How long it takes says how many pay.
  void run(const std::vector<PlannedSlice>& plan, const std::function<void()>& forward);
  // Of a slice's guesses the first `right` are what was sampled there; the request has said so many tokens more.
  void accept(const PlannedSlice& p, std::int64_t right, std::int64_t said);

  const DraftCounters& counters() const { return drafter_.counters(); }

 private:
  void ask_layer(const std::vector<PlannedSlice>& plan, std::int64_t rows);

  Drafter drafter_;
  AskLayer ask_layer_;
  std::int64_t positions_ = 0;
  std::vector<Sequence*> asked_;
};

// Of a slice's guesses, those before the first one that is not what its row's neighbour sampled. `sampled`: of all its rows that are.
std::int64_t right_guesses(const PlannedSlice& p, std::span<const StepResult::Sampled> sampled);

}  // namespace lockstep
