// The serving engine: continuous batching over a paged cache. Tokens in, tokens and log-probabilities out. What a
// request gets depends on weights, tokens, sampling parameters and seed alone, never on what else runs, on chunks,
// pages, cache or threads. Knows no text, no HTTP, no training. Used by one thread at a time; callbacks run on that
// thread inside submit, cancel or step, in order, and may call submit, cancel and set_weights, but not step. One that
// throws leaves the engine as it was after it.
//   Engine engine(runtime, weights, {}); std::vector<Generation> g = engine.generate({{.prompt = {1, 2, 3}}});
#pragma once
#include <memory>
#include <unordered_map>
#include <utility>

#include "engine/admission.h"
#include "engine/drafts/step_guesses.h"
#include "engine/generation.h"
#include "engine/kept_scores.h"
#include "engine/plans_under_way.h"
#include "engine/rank_steps.h"
#include "engine/step_counts.h"
#include "engine/untold.h"

namespace lockstep {

class Engine {
 public:
  // Throws invalid_argument when an option is out of range or the cache does not hold one page. `mtp`: weights of the model's layer of multi-token
  // prediction, for DraftKind::mtp (engine/drafts/mtp_steps.h); null: no such drafts.
  Engine(Runtime& runtime, std::shared_ptr<const WeightSet> weights, const EngineOptions& options = {}, std::shared_ptr<const WeightSet> mtp = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;

  using OnToken = std::function<void(std::uint64_t id, const GeneratedToken&)>;
  using OnDone = std::function<void(Generation&&)>;
  // Returns the id (from 1, ascending). Throws invalid_argument with the field at fault; then nothing is kept.
  std::uint64_t submit(Request request, OnToken on_token = {}, OnDone on_done = {});
  // Ends a request with FinishReason::cancelled; an unknown or finished id is ignored. Tokens that on_token has not received yet (a step may accept
  // several) are dropped, and if the request had ended with one of them, or failed in a row behind a guess, it counts as cancelled instead.
  void cancel(std::uint64_t id);
  // Removes what a request has generated beyond its first `tokens` tokens, with their pages and the state of constraint and penalties; it goes on
  // from there with the bits it would have had. on_token is called again for tokens that come again. Unknown or finished ids are ignored. A request
  // that is speculated under a constraint cannot go back behind TokenConstraint::settle: it then ends with FinishReason::error.
  void truncate(std::uint64_t id, std::size_t tokens);
  // One forward over prompt chunks and decoding rows of all running requests; false when there is nothing to do. With stages of a pipeline it is a turn
  // of several forwards, of some of the requests each (engine/plans_under_way.h). A
  // request with a NaN or an infinity in its rows, or whose constraint allows nothing or throws, ends with
  // FinishReason::error, alone. When the forward itself throws,
  // all requests stay and start over at the next step. If that happens while cancel, truncate, preempt or set_weights wait for forwards that are under way,
  // they do their work, and the next step throws it.
  bool step();
  void run_until_idle();
  // Submits all, runs until they are done (other requests run beside them), returns them in order.
  std::vector<Generation> generate(std::vector<Request> requests);

  // From the next step on. Cached prefixes of other versions are never used again; `in_flight` says how running requests without weights of their own
  // go on. The same pointer again has no effect. `mtp`: new weights of the layer of an engine that was made with one, under which requests in flight go
  // on; null: as they are. Errors: invalid_argument for a layer that the engine does not have.
  void set_weights(std::shared_ptr<const WeightSet> weights, InFlight in_flight = InFlight::go_on, std::shared_ptr<const WeightSet> mtp = nullptr);
  std::uint64_t weights_version() const { return version_; }

  // set_pace: how a request's tokens go through the model from its next forward on. preempt: back to the waiting ones, as when pages run out. Neither
  // changes a bit. An unknown or finished id is ignored. If a pace takes scored prompt positions from the cache, their log-probabilities are NaN.
  void set_pace(std::uint64_t id, const Pace& pace);
  void preempt(std::uint64_t id);

  const EngineCounters& counters() const { return counters_; }
  const EngineOptions& options() const { return options_; }  // cache_pages as resolved
  const RequestLimits& limits() const { return limits_; }
  bool idle() const { return scheduler_->idle() && untold_.empty(); }
  std::int64_t running() const { return static_cast<std::int64_t>(scheduler_->running().size()); }
  std::int64_t waiting() const { return static_cast<std::int64_t>(scheduler_->waiting().size()); }
  const Scheduler& scheduler() const { return *scheduler_; }
  const RankSteps& rank_steps() const { return *steps_; }
  // The accounts with rows in forwards since the last call: in those of steps, and in those that cancel, truncate, preempt and set_weights waited for.
  std::vector<AccountRows> take_rows() { return std::exchange(rows_, {}); }

 private:
  // One turn of plans that follow each other; `enters`: another one begins. An error leaves none under way.
  void advance(bool enters);
  // `read`: by slice, faults of its pages that earlier plans have found; empty: none.
  void absorb(const std::vector<PlannedSlice>& plan, const std::vector<RowFault>& read = {});
  void fail_flagged(const std::vector<PlannedSlice>& plan, const std::vector<RowFault>& read);
  // Appends what the slice's rows up to `row` sampled to the request (engine/acceptance.h), and queues the tokens for on_token.
  FinishReason accept(const PlannedSlice& p, std::size_t slice, std::int64_t row);
  void finish(Sequence& s, FinishReason reason, std::int64_t forget_from = std::numeric_limits<std::int64_t>::max());
  void deliver();

  Runtime& runtime_;
  std::weak_ptr<const WeightSet> weights_;  // the newest; the steps hold it where they use it whole
  std::uint64_t version_ = 0;
  EngineOptions options_;
  const int stages_;  // of a pipeline that have segments; 1: there is none
  RequestLimits limits_;
  EngineCounters counters_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<RankSteps> steps_;
  StepGuesses guesses_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Sequence>> sequences_;
  Untold untold_{counters_};
  StepWants wants_;
  StepResult result_;
  KeptScores kept_scores_;
  PlansUnderWay under_way_{[this] { advance(false); }};
  std::vector<AccountRows> rows_;  // that nobody has taken
  std::uint64_t next_id_ = 1;
  bool delivering_ = false;
};

}  // namespace lockstep
