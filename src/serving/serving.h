// Generation for many callers: an engine, its tokenizer and the executor they run on, behind functions that any thread may
// call at any time. Tokens in and out; text is serving/text_stream.h's; no transport.
// Callbacks run on the executor's thread, in order, and must neither block nor throw; they may call generate and cancel, not stop.
// At most `max_open` requests are open; one more is refused (resource_exhausted).
// A request belongs to an account (base/fair_shares.h): whoever has one open is an account with work to the executor, and a step of the
// engine, in whoever's turn, serves all and is paid by their rows.
//   OpenedModel opened = open_model(settings); GenerationService service(serving_model(opened), {});  // serving/loading.h
//   const auto id = service.generate(request, on_token, on_done); ... service.cancel(id);
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "serving/callers.h"
#include "serving/request_bounds.h"
#include "serving/request_counts.h"
#include "serving/served_model.h"
#include "serving/served_weights.h"
#include "serving/service_turns.h"
#include "serving/serving_options.h"

namespace lockstep {

class GenerationService {
 public:
  // False: no more tokens; the request ends with FinishReason::stop.
  using OnToken = std::function<bool(const GeneratedToken&)>;
  using OnDone = std::function<void(Generation&&)>;

  GenerationService(ServingModel model, const ServingOptions& options = {});
  ~GenerationService();  // stop()
  GenerationService(const GenerationService&) = delete;
  GenerationService& operator=(const GenerationService&) = delete;

  // Returns at once with an id of this service. Exactly one on_done follows, after all on_token. The model's end tokens stop a
  // request only where they stand in its stop_tokens (see ServedModel::end_tokens).
  // Errors, and then neither callback is called: invalid_argument, resource_exhausted (full), cancelled (stopped).
  std::uint64_t generate(Request request, OnToken on_token, OnDone on_done);
  // The same for several, all of them or none; callbacks are told which.
  using OnTokenOf = std::function<bool(std::size_t index, const GeneratedToken&)>;
  using OnDoneOf = std::function<void(std::size_t index, Generation&&)>;
  // Of one that on_token has ended, with what it said since it was held last. True: it is held. Then it has its place and no turn of the device, and its
  // pages may go to others, until resume() or cancel(); on_done comes once, at its end, with the last part. It may call resume, not cancel.
  using OnPartOf = std::function<bool(std::size_t index, Generation& part)>;
  std::vector<std::uint64_t> generate_all(std::vector<Request> requests, OnTokenOf on_token, OnDoneOf on_done, OnPartOf on_part = {});
  // Asks `decide`, on the executor's thread, how the request goes on; false, and its answer is not heard: it is not held. Error cancelled once stopped.
  void resume(std::uint64_t id, std::function<Resumption(bool held)> decide);
  // What generate would refuse of the request itself.
  void check(const Request& request) const { check_request(request, limits_); }
  // Its on_done follows soon, with FinishReason::cancelled; an id that is finished or unknown is ignored.
  void cancel(std::uint64_t id);
  // For callbacks: runs once, when all tokens and ends of this step have been told.
  void after_step(std::function<void()> callback) { turns_.after_step(std::move(callback)); }
  // Ends every request with FinishReason::cancelled and takes no more. Again: nothing happens.
  void stop();

  const ServedModel& model() const { return model_; }
  const RequestLimits& limits() const { return limits_; }
  const ServingOptions& options() const { return options_; }
  bool drafts_with_layer() const { return drafts_with_layer_; }  // DraftKind::mtp is there
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
  // Calls back on the executor's thread once the running step has ended: proof that the engine steps. Waits for nothing.
  // Error cancelled once stopped.
  void snapshot(std::function<void(const ServiceSnapshot&)> callback);

 private:
  struct Open {
    CountedRequest counted;
    std::shared_ptr<const OnToken> on_token;   // null: nobody listens
    std::function<bool(Generation&)> on_part;  // null: it is never held
    OnDone on_done;
    std::uint64_t engine_id = 0;  // 0: the engine does not have it
    bool enough = false;          // on_token said so
    bool held = false;
    bool in_turns = true;  // its account has a turn for it
  };
  void submit(std::uint64_t id, Request&& request);
  void finish(std::uint64_t id, Generation&& generation);
  void step();

  const ServingOptions options_;
  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Executor> executor_;
  const ServedModel model_;
  ServiceStatistics statistics_;
  RequestCounts counts_;
  const std::shared_ptr<ShareAccount> own_account_;  // of requests that bring none, and of commands
  RequestBounds bounds_;
  Callers callers_;
  ServiceTurns turns_;
  // Of the executor's thread, to the empty line.
  std::unique_ptr<Engine> engine_;
  std::unordered_map<std::uint64_t, Open> requests_;
  int failures_ = 0;  // steps in a row

  RequestLimits limits_;
  bool drafts_with_layer_ = false;
  std::unique_ptr<NamedAdapters> adapters_;
  std::unique_ptr<ServedWeights> weights_;
  std::atomic<std::uint64_t> next_id_{1};
};

}  // namespace lockstep
