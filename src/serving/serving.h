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
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "serving/key_classes.h"
#include "serving/request_bounds.h"
#include "serving/served_model.h"
#include "serving/service_turns.h"
#include "serving/serving_options.h"
#include "serving/statistics.h"
#include "serving/version_names.h"

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
  std::vector<std::uint64_t> generate_all(std::vector<Request> requests, OnTokenOf on_token, OnDoneOf on_done);
  // Request::prefix_owner of whoever has this name ("": nobody has one). Not to be guessed from the name.
  std::uint64_t prefix_owner(std::string_view name) const;
  // Request::account of whoever has this name ("": nobody has one).
  std::shared_ptr<ShareAccount> account(const std::string& name, WorkClass work) const;
  std::shared_ptr<ShareAccount> account(const std::string& name) const { return account(name, key_classes_.of(name)); }
  // What generate would refuse of the request itself.
  void check(const Request& request) const { check_request(request, limits_); }
  // Its on_done follows soon, with FinishReason::cancelled; an id that is finished or unknown is ignored.
  void cancel(std::uint64_t id);
  // For callbacks: runs once, when all tokens and ends of this step have been told.
  void after_step(std::function<void()> callback) { turns_.after_step(std::move(callback)); }
  // Weights of the steps that begin after this call; and an adapter over them for the requests that come after it and bring neither weights nor an
  // adapter (null: none).
  void set_weights(std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter = nullptr);
  // Between two steps `make` is run on the executor's thread, and what it gives is what the steps behind it use; requests in flight go on as
  // `in_flight` says (of an adapter: on the one that they began with). Returns when that is done. Throws what `make` throws, and then nothing is
  // changed. Not from the executor's thread.
  struct Swapped {
    std::shared_ptr<const WeightSet> weights;
    std::shared_ptr<const AdapterWeights> adapter = nullptr;
  };
  void swap_weights(std::function<Swapped()> make, const SnapshotVersion& version, InFlight in_flight);
  const VersionNames& version_names() const { return version_names_; }
  // The weights that it was made with came from this snapshot (sync/manifest.h). Before the first request.
  void name_weights(const std::string& snapshot) { version_names_.add({version_.load(), snapshot, snapshot}); }
  std::uint64_t weights_version() const { return version_; }
  // Ends every request with FinishReason::cancelled and takes no more. Again: nothing happens.
  void stop();

  const ServedModel& model() const { return model_; }
  const RequestLimits& limits() const { return limits_; }
  const ServingOptions& options() const { return options_; }
  bool drafts_with_layer() const { return drafts_with_layer_; }  // DraftKind::mtp is there
  RequestBounds& bounds() { return bounds_; }
  const RequestBounds& bounds() const { return bounds_; }
  KeyClasses& key_classes() { return key_classes_; }
  const KeyClasses& key_classes() const { return key_classes_; }
  NamedAdapters& adapters() { return *adapters_; }
  const NamedAdapters& adapters() const { return *adapters_; }
  EngineCounters counters();  // waits for the running step; Error cancelled once stopped
  const ServiceStatistics& statistics() const { return statistics_; }
  // Calls back on the executor's thread once the running step has ended: proof that the engine steps. Waits for nothing.
  // Error cancelled once stopped.
  void snapshot(std::function<void(const ServiceSnapshot&)> callback);

 private:
  struct Open {
    RequestOwner owner;
    OnDone on_done;
    std::chrono::steady_clock::time_point began;
    std::uint64_t engine_id = 0;
    bool enough = false;   // on_token said so
    std::size_t told = 0;  // tokens, by on_token
    std::chrono::steady_clock::time_point told_at = {};
  };
  void begin(std::uint64_t id, Request&& request, OnToken&& on_token, Open&& open);
  void finish(std::uint64_t id, Generation&& generation);
  void count_token(Open& open);
  void step();
  void fail_all(const std::string& message);
  void count_tokens(const RequestOwner& whose, std::size_t tokens) const;

  const ServingOptions options_;
  const std::shared_ptr<Runtime> runtime_;
  const std::shared_ptr<Executor> executor_;
  const ServedModel model_;
  ServiceStatistics statistics_;
  const std::string owner_salt_;
  const std::shared_ptr<ShareAccount> own_account_;  // of requests that bring none, and of commands
  RequestBounds bounds_;
  KeyClasses key_classes_;
  ServiceTurns turns_;
  // Of the executor's thread, to the empty line.
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const AdapterWeights> adapter_;  // of requests without one
  std::unordered_map<std::uint64_t, Open> requests_;
  int failures_ = 0;  // steps in a row

  RequestLimits limits_;
  bool drafts_with_layer_ = false;
  std::unique_ptr<NamedAdapters> adapters_;
  VersionNames version_names_;
  std::atomic<std::uint64_t> next_id_{1}, version_;
};

}  // namespace lockstep
