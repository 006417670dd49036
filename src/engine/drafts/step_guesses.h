// Speculative decoding within a step: adds rows of guessed tokens behind the last token of each request that allows it, and accepts the sampled
// tokens up to the first wrong guess. Answers have the same bits without it, except under rejection sampling, where every round has all its guesses
// however few rows are left. Used by one thread at a time.
//   guesses.propose(plan, scheduler); guesses.run(plan, forward); guesses.accept(p, right_guesses(p, result.sampled(slice)), said);
#pragma once
#include <functional>

#include "engine/drafts/drafter.h"
#include "engine/step_result.h"

namespace lockstep {

class StepGuesses {
 public:
  // Runs the layer of multi-token prediction for these sequences, each for that many tokens or fewer (engine/drafts/mtp_steps.h).
  using AskLayer = std::function<std::vector<std::vector<std::int32_t>>(std::span<Sequence* const> sequences, std::int64_t tokens)>;

  StepGuesses(const DraftOptions& options, std::int64_t vocabulary) : drafter_(options, vocabulary) {}
  // The model has such a layer. It runs for decoding sequences that are far enough from `positions`, since its RoPE looks ahead.
  void set_layer(AskLayer ask, std::int64_t positions);
  // Makes the sequence's sources from its request.
  void begin(Sequence& s, Request& request) { drafter_.begin(s, request); }
  // The request has ended.
  void end(Sequence& s) { drafter_.end(s); }

  // Adds rows of draft tokens behind the plan's slices that sample a token. Room that the forward has left is shared equally.
  void propose(const std::vector<PlannedSlice>& plan, Scheduler& scheduler);
  // Runs the forward with the drafts appended to their requests' texts.
  void run(const std::vector<PlannedSlice>& plan, const std::function<void()>& forward);
  // The plan's forward has taken so long, which decides how long drafts may be; run() tells it itself.
  void observe(const std::vector<PlannedSlice>& plan, double seconds);
  // Accepts the first `right` tokens of a slice's draft; the request has that many tokens more.
  void accept(const PlannedSlice& p, std::int64_t right, std::int64_t said);

  const DraftCounters& counters() const { return drafter_.counters(); }

 private:
  void ask_layer(const std::vector<PlannedSlice>& plan, std::int64_t rows);

  Drafter drafter_;
  AskLayer ask_layer_;
  std::int64_t positions_ = 0;
  std::vector<Sequence*> asked_;
};

// Appends the drafts of a plan's slices to their requests' texts, where the forward reads them, and takes them away again.
void show_guesses(const std::vector<PlannedSlice>& plan);
void hide_guesses(const std::vector<PlannedSlice>& plan);
// How many tokens of a slice's draft equal the tokens sampled before them, up to the first that does not. `sampled`: of all its sampled rows.
std::int64_t right_guesses(const PlannedSlice& p, std::span<const StepResult::Sampled> sampled);

}  // namespace lockstep
