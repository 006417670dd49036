// A generation service: an engine, its tokenizer and their executor behind functions that any thread may call at any time. Tokens in and out; text is
// made by serving/text_stream.h. Knows no transport.
// Callbacks run in steps of the executor, in order, those of generate_all with the token that says so; they must neither block nor throw, and may call
// generate and cancel, but not stop. At most `max_open` requests are open; one more is refused (resource_exhausted).
// Each request belongs to an account (base/fair_shares.h), which waits for the executor while it has open requests. A step of the engine, whosever
// turn it is, computes rows of all requests, and its device time is charged to their accounts by rows; so is that of a command that waits for forwards.
//   OpenedModel opened = open_model(settings); GenerationService service(serving_model(opened), {});  // serving/loading.h
//   const auto id = service.generate(request, on_token, on_done); ... service.cancel(id);
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/admission.h"
#include "serving/callers.h"
#include "serving/on_executor.h"
#include "serving/request_bounds.h"
#include "serving/request_counts.h"
#include "serving/served_model.h"
#include "serving/served_weights.h"
#include "serving/service_turns.h"
#include "serving/serving_options.h"

namespace lockstep {

class Engine;

class GenerationService {
 public:
  // False: no more tokens; the request ends with FinishReason::stop.
  using OnToken = std::function<bool(const GeneratedToken&)>;
  using OnDone = std::function<void(Generation&&)>;

  GenerationService(ServingModel model, const ServingOptions& options = {});
  ~GenerationService();  // stop()
  GenerationService(const GenerationService&) = delete;
  GenerationService& operator=(const GenerationService&) = delete;

  // Returns an id at once. Exactly one on_done follows, after all on_token. The model's end tokens stop a request only if its stop_tokens contain them
  // (see ServedModel::end_tokens).
  // Errors, and then neither callback is called: invalid_argument, resource_exhausted (full), cancelled (stopped).
  std::uint64_t generate(Request request, OnToken on_token, OnDone on_done);
  // The same for several requests, all or none; callbacks get the index.
  using OnTokenOf = std::function<bool(const OnExecutor& on, std::size_t index, const GeneratedToken&)>;
  using OnDoneOf = std::function<void(const OnExecutor& on, std::size_t index, Generation&&)>;
  // Called with what a request generated since it was last held, when on_token ended it. Returns true to hold it: it keeps its place without a turn of the
  // device, and its pages may go to others, until resume() or cancel(); on_done comes once, at its end, with the last part. May call resume, not cancel.
  using OnPartOf = std::function<bool(const OnExecutor& on, std::size_t index, Generation& part)>;
  std::vector<std::uint64_t> generate_all(std::vector<Request> requests, OnTokenOf on_token, OnDoneOf on_done, OnPartOf on_part = {});
  // Asks `decide` how the request goes on; where `held` is false it is not held, and the answer is ignored. Error cancelled once stopped.
  void resume(std::uint64_t id, std::function<Resumption(const OnExecutor& on, bool held)> decide);
  // Throws what generate would throw about the request itself.
  void check(const Request& request) const { check_request(request, limits_); }
  // on_done follows soon with FinishReason::cancelled; a finished or unknown id is ignored.
  void cancel(std::uint64_t id);
  // For callbacks: runs once, after all callbacks of this step.
  void after_step(const OnExecutor& on, std::function<void(const OnExecutor& on)> callback) { turns_.after_step(on, std::move(callback)); }
  // Ends every request with FinishReason::cancelled and accepts no more. Calling it again has no effect.
  void stop();

  const ServedModel& model() const { return model_; }
  const RequestLimits& limits() const { return limits_; }
  const ServingOptions& options() const { return options_; }
  bool drafts_with_layer() const { return drafts_with_layer_; }  // DraftKind::mtp is available
  RequestBounds& bounds() { return bounds_; }
  const RequestBounds& bounds() const { return bounds_; }
  Callers& callers() { return callers_; }
  const Callers& callers() const { return callers_; }
  ServedWeights& weights() { return *weights_; }
  const ServedWeights& weights() const { return *weights_; }
  NamedAdapters& adapters() { return *adapters_; }
  const NamedAdapters& adapters() const { return *adapters_; }
  EngineCounters counters();  // waits for the running step; Error cancelled once stopped
  const ServiceStatistics& statistics() const { return statistics_; }
  // Calls back after the running step, which shows that the engine makes progress. Does not wait.
  // Error cancelled once stopped.
  void snapshot(std::function<void(const ServiceSnapshot&)> callback);

 private:
  struct Open {
    CountedRequest counted;
    // Null: nobody listens.
    std::shared_ptr<const std::function<bool(const OnExecutor&, const GeneratedToken&)>> on_token;
    std::function<bool(const OnExecutor&, Generation&)> on_part;  // null: it is never held
    std::function<void(const OnExecutor&, Generation&&)> on_done;
    std::uint64_t engine_id = 0;  // 0: the engine does not have it
    bool enough = false;          // on_token said so
    bool held = false;
    bool in_turns = true;  // its account has a turn for it
  };
  struct Running {
    std::unordered_map<std::uint64_t, Open> requests;
    int failures = 0;  // steps in a row
    std::unique_ptr<Engine> engine;
  };
  void submit(const OnExecutor& on, std::uint64_t id, Request&& request);
  void finish(const OnExecutor& on, std::uint64_t id, Generation&& generation);
  void step(const OnExecutor& on);

  const ServingOptions options_;
  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Executor> executor_;
  const ServedModel model_;
  ServiceStatistics statistics_;
  RequestCounts counts_;
  const std::shared_ptr<ShareAccount> own_account_;  // for requests without an account, and for commands
  RequestBounds bounds_;
  Callers callers_;
  ServiceTurns turns_;
  OfExecutor<Running> running_;
  RequestLimits limits_;
  bool drafts_with_layer_ = false;
  std::unique_ptr<NamedAdapters> adapters_;
  std::unique_ptr<ServedWeights> weights_;
  std::atomic<std::uint64_t> next_id_{1};
};

}  // namespace lockstep
