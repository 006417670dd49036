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
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "serving/executor.h"
#include "serving/generation_defaults.h"
#include "serving/grammars.h"
#include "serving/named_adapters.h"
#include "serving/statistics.h"
#include "text/message/message_parser.h"
#include "text/template/prompt_encoder.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

// What a service is made of. Engine and trainer may share runtime and executor.
struct ServingModel {
  std::string name;
  std::shared_ptr<Runtime> runtime;
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<const Tokenizer> tokenizer;         // null: token ids only
  std::shared_ptr<Executor> executor;                 // null: one of its own
  std::shared_ptr<const ChatTemplate> chat_template;  // null: no chat
  MessageFormat message_format{};                     // how it writes reasoning and tool calls
  bool tools_in_system = false;                       // its template shows none: they are told in the system message (serving/tool_prompt.h)
  GenerationDefaults defaults;                        // of its generation_config.json; nothing: none is read
};

struct ServingOptions {
  EngineOptions engine;
  std::int64_t max_open = 1024;
  WorkClass priority = WorkClass::live;
  NamedAdapterOptions adapters;
  bool share_prefixes = false;                          // all owners find each other's cached prompts (prefix_owner)
  std::size_t grammar_bytes = Grammars::kKeptBytes;     // of grammars that are kept, and as much of their masks
  std::size_t response_bytes = std::size_t{256} << 20;  // of answers that an API keeps to be asked for again
  // Told of a key's tokens: of prompts as they are taken, of answers as they end. Any thread.
  std::function<void(const std::string& key, std::int64_t tokens)> count_tokens = {};
};

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
  // request only where they stand in its stop_tokens (see end_tokens()).
  // Errors, and then neither callback is called: invalid_argument, resource_exhausted (full), cancelled (stopped).
  std::uint64_t generate(Request request, OnToken on_token, OnDone on_done);
  // The same for several, all of them or none; callbacks are told which.
  using OnTokenOf = std::function<bool(std::size_t index, const GeneratedToken&)>;
  using OnDoneOf = std::function<void(std::size_t index, Generation&&)>;
  std::vector<std::uint64_t> generate_all(std::vector<Request> requests, OnTokenOf on_token, OnDoneOf on_done);
  // Request::prefix_owner of whoever has this name ("": nobody has one). Not to be guessed from the name.
  std::uint64_t prefix_owner(std::string_view name) const;
  // Request::account of whoever has this name ("": nobody has one).
  std::shared_ptr<ShareAccount> account(const std::string& name, WorkClass work = WorkClass::live) const;
  // How many requests a key may have open; keys that are not named, as many as max_open.
  void set_streams(std::map<std::string, std::int64_t> most);
  // What generate would refuse of the request itself.
  void check(const Request& request) const { check_request(request, limits_); }
  // Its on_done follows soon, with FinishReason::cancelled; an id that is finished or unknown is ignored.
  void cancel(std::uint64_t id);
  // For callbacks: runs once, when all tokens and ends of this step have been told.
  void after_step(std::function<void()> callback) { after_step_.push_back(std::move(callback)); }
  // Weights of the steps that begin after this call; and an adapter over them for the requests that come after it and bring neither weights nor an
  // adapter (null: none).
  void set_weights(std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter = nullptr);
  // Ends every request with FinishReason::cancelled and takes no more. Again: nothing happens.
  void stop();

  const std::string& name() const { return model_.name; }
  const Tokenizer& tokenizer() const;  // Error unsupported when there is none
  bool has_tokenizer() const { return model_.tokenizer != nullptr; }
  bool has_chat() const { return prompt_encoder_ != nullptr; }
  bool shows_tools() const { return shows_tools_; }  // a talk's prompt tells of the tools that a request offers
  // The ids of a talk, in which no message forges a special token. Errors: unsupported without a chat template; the template's.
  std::vector<std::int32_t> encode_chat(const ChatTemplateInput& input) const;
  Grammars& grammars() { return *grammars_; }
  NamedAdapters& adapters() { return *adapters_; }
  const NamedAdapters& adapters() const { return *adapters_; }
  MessageFormat message_format() const { return model_.message_format; }
  const CallMarkup& call_markup() const { return call_markup_; }  // of message_format(), as the chat template shows it
  // Of config.json and of generation_config.json; each of them ends a turn.
  const std::vector<std::int32_t>& end_tokens() const { return end_tokens_; }
  const GenerationDefaults& defaults() const { return model_.defaults; }
  const RequestLimits& limits() const { return limits_; }
  const DraftOptions& drafts() const { return options_.engine.drafts; }          // of requests that bring no choice of their own
  std::int64_t hidden() const { return model_.runtime->model->facts().hidden; }  // numbers of a pooled prompt
  std::string profile_name() const { return model_.runtime->profile.name; }
  const std::string& profile_digest() const { return profile_digest_; }
  std::uint64_t weights_version() const { return version_; }
  std::int64_t open() const { return open_; }
  std::int64_t max_open() const { return options_.max_open; }
  std::size_t response_bytes() const { return options_.response_bytes; }
  EngineCounters counters();  // waits for the running step; Error cancelled once stopped
  const ServiceStatistics& statistics() const { return statistics_; }
  // Calls back on the executor's thread once the running step has ended: proof that the engine steps. Waits for nothing.
  // Error cancelled once stopped.
  void snapshot(std::function<void(const ServiceSnapshot&)> callback);

 private:
  // Of an account with open requests, or with an item in the executor.
  struct Turn {
    std::shared_ptr<ShareAccount> account;
    std::int64_t open = 0, streams = 0;  // of those: that count as one
    bool scheduled = false;
  };
  struct Begun {
    std::shared_ptr<ShareAccount> account;
    bool is_stream = true;
  };
  struct Open {
    std::uint64_t engine_id = 0;
    Begun begun;
    OnDone on_done;
    std::chrono::steady_clock::time_point began;
    bool enough = false;   // on_token said so
    std::size_t told = 0;  // tokens, by on_token
  };
  void post(std::function<void()> command);
  void post(std::function<void()> command, const std::vector<Begun>& of_requests);
  void check_stopped() const;
  void check_streams(const std::vector<Begun>& of_requests);
  std::int64_t streams_of(const std::string& key) const;
  void reserve(std::size_t requests);
  bool step(ShareAccount* whose);
  void step_engine();
  void count_tokens(const Begun& whose, std::size_t tokens) const;
  void run_commands();
  void run_after_step();
  void begin(std::uint64_t id, Request&& request, OnToken&& on_token, OnDone&& on_done, std::chrono::steady_clock::time_point began);
  std::vector<WaitingSequences> waiting_sequences() const;
  void count_generation(const Open& open, Generation& generation);
  void finish(std::uint64_t id, Generation&& generation);
  void fail_all(const std::string& message);

  ServingModel model_;
  ServiceStatistics statistics_;
  ServingOptions options_;
  std::vector<std::int32_t> end_tokens_;
  std::unique_ptr<Grammars> grammars_;
  std::unique_ptr<NamedAdapters> adapters_;
  std::unique_ptr<const PromptEncoder> prompt_encoder_;  // null: no chat
  CallMarkup call_markup_;
  bool shows_tools_ = false;
  std::string profile_digest_;
  std::string owner_salt_;
  std::shared_ptr<ShareAccount> own_account_;      // of requests that bring none, and of commands
  std::unique_ptr<Engine> engine_;                 // executor's thread
  std::shared_ptr<const AdapterWeights> adapter_;  // of requests without one; executor's thread
  RequestLimits limits_;
  std::unordered_map<std::uint64_t, Open> requests_;  // executor's thread
  std::vector<std::function<void()>> after_step_;     // executor's thread
  int failures_ = 0;                                  // steps in a row; executor's thread

  std::atomic<std::uint64_t> next_id_{1}, version_{0};
  std::atomic<std::int64_t> open_{0};
  mutable std::mutex mutex_;  // of all below
  std::vector<std::function<void()>> commands_;
  bool command_scheduled_ = false;  // an item that runs them is in the executor
  std::unordered_map<ShareAccount*, Turn> turns_;
  std::map<std::string, std::int64_t> most_streams_;  // by key
  bool stopped_ = false;
};

}  // namespace lockstep
