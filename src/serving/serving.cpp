#include "serving/serving.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/burst.h"
#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/seconds.h"
#include "serving/tool_prompt.h"

namespace lockstep {
namespace {
// A callback's exception is a bug of ours; other requests go on.
template <class F>
void guarded(std::string_view what, F&& call) {
  try {
    call();
  } catch (const std::exception& e) {
    log_error("a callback of a request failed", {{"callback", what}, {"reason", e.what()}});
  }
}
}  // namespace

GenerationService::GenerationService(ServingModel model, const ServingOptions& options) : model_(std::move(model)), options_(options) {
  if (!model_.executor) model_.executor = std::make_shared<Executor>();
  for (std::int64_t id : model_.runtime->model->facts().eos_tokens) end_tokens_.push_back(static_cast<std::int32_t>(id));
  for (const std::int32_t id : model_.defaults.end_tokens) {
    if (id >= model_.runtime->model->facts().vocabulary)
      fail(ErrorCode::corrupt_file,
           "generation_config.json: 'eos_token_id' has {}, allowed is below config.json's 'vocab_size' {} (--generation-config none leaves the file out)", id,
           model_.runtime->model->facts().vocabulary);
    if (std::find(end_tokens_.begin(), end_tokens_.end(), id) == end_tokens_.end()) end_tokens_.push_back(id);
  }
  grammars_ = std::make_unique<Grammars>(model_.tokenizer, end_tokens_, options_.grammar_bytes);
  if (model_.tokenizer && model_.chat_template) prompt_encoder_ = std::make_unique<const PromptEncoder>(model_.tokenizer);
  if (model_.chat_template) {
    call_markup_ = lockstep::call_markup(model_.message_format, model_.tools_in_system ? std::string_view() : model_.chat_template->source());
    shows_tools_ = model_.tools_in_system || lockstep::shows_tools(*model_.chat_template);
  }
  own_account_ = model_.executor->account(options_.priority);
  profile_digest_ = model_.runtime->profile.digest();
  owner_salt_ = hex64(random_bits()) + hex64(random_bits());
  version_ = model_.weights->version;
  // The device is the executor's from here on.
  model_.executor
      ->run(options_.priority, [this] { engine_ = std::make_unique<Engine>(*model_.runtime, std::exchange(model_.weights, nullptr), options_.engine); })
      .get();
  limits_ = engine_->limits();
  adapters_ = std::make_unique<NamedAdapters>(model_.runtime, model_.executor, model_.name, options_.adapters, options_.engine.ranks.size());
}

std::uint64_t GenerationService::prefix_owner(std::string_view name) const {
  if (options_.share_prefixes) return 0;
  return std::stoull(sha256_hex(owner_salt_ + std::string(name)).substr(0, 16), nullptr, 16);
}

std::shared_ptr<ShareAccount> GenerationService::account(const std::string& name, WorkClass work) const {
  return model_.executor->account(work, name.empty() ? "anyone" : name);
}

void GenerationService::set_streams(std::map<std::string, std::int64_t> most) {
  const std::lock_guard lock(mutex_);
  most_streams_ = std::move(most);
}

GenerationService::~GenerationService() {
  stop();
  // Its buffers go back to the device on the device's thread.
  try {
    model_.executor->run(options_.priority, [this] { engine_.reset(), adapter_.reset(); }).get();
  } catch (const std::exception&) {
    model_.executor->stop();
    engine_.reset(), adapter_.reset();
  }
}

const Tokenizer& GenerationService::tokenizer() const {
  if (!model_.tokenizer) fail(ErrorCode::unsupported, "model '{}' has no tokenizer.json, so it takes token ids only", model_.name);
  return *model_.tokenizer;
}

std::vector<std::int32_t> GenerationService::encode_chat(const ChatTemplateInput& input) const {
  if (!prompt_encoder_)
    fail(ErrorCode::unsupported, "model '{}' has no {}, so it has no chat; it continues {}", model_.name,
         model_.tokenizer ? "chat template (chat_template.jinja, or \"chat_template\" in tokenizer_config.json)" : "tokenizer.json",
         model_.tokenizer ? "texts" : "token ids");
  return prompt_encoder_->encode(model_.chat_template->render_marked(model_.tools_in_system ? with_tools_told(input, call_markup_) : input));
}

void GenerationService::check_stopped() const {
  if (stopped_) fail(ErrorCode::cancelled, "the service of model '{}' has stopped", model_.name);
}

// One that begins no request: it costs no step.
void GenerationService::post(std::function<void()> command) {
  const std::lock_guard lock(mutex_);
  check_stopped();
  if (!command_scheduled_)
    model_.executor->submit(own_account_, [this] {
      model_.executor->tell("command");
      {
        const std::lock_guard now(mutex_);
        command_scheduled_ = false;
      }
      run_commands();
      run_after_step();
      return false;
    });
  command_scheduled_ = true;
  commands_.push_back(std::move(command));
}

void GenerationService::post(std::function<void()> command, const std::vector<Begun>& of_requests) {
  const std::lock_guard lock(mutex_);
  check_stopped();
  check_streams(of_requests);
  for (const Begun& one : of_requests) {
    Turn& turn = turns_[one.account.get()];
    turn.account = one.account;
    if (!turn.scheduled) model_.executor->submit(one.account, [this, whose = one.account.get()] { return step(whose); });
    turn.scheduled = true;
    ++turn.open;
    turn.streams += one.is_stream;
  }
  commands_.push_back(std::move(command));
}

std::int64_t GenerationService::streams_of(const std::string& key) const {
  std::int64_t streams = 0;
  for (const auto& [whose, turn] : turns_)
    if (whose->key == key) streams += turn.streams;
  return streams;
}

// All of them are one key's.
void GenerationService::check_streams(const std::vector<Begun>& of_requests) {
  const auto most = most_streams_.find(of_requests.front().account->key);
  if (most == most_streams_.end() || !of_requests.front().is_stream) return;
  const auto more = static_cast<std::int64_t>(of_requests.size());
  if (more > most->second)
    fail(ErrorCode::invalid_argument, "the request asks for {} sequences, allowed are {} at a time (streams of this API key)", more, most->second);
  const std::int64_t own = streams_of(most->first);
  if (own + more <= most->second) return;
  statistics_.refused += of_requests.size();
  fail(ErrorCode::resource_exhausted, "this API key has {} open sequences and gets {} more, allowed are {} (its streams); try again later", own, more,
       most->second);
}

void GenerationService::reserve(std::size_t requests) {
  const auto more = static_cast<std::int64_t>(requests);
  const std::int64_t before = open_.fetch_add(more);
  if (before + more <= options_.max_open) return;
  open_ -= more;
  statistics_.refused += requests;
  fail(ErrorCode::resource_exhausted, "model '{}' has {} open requests and gets {} more, allowed are {}; try again later", model_.name, before, more,
       options_.max_open);
}

std::uint64_t GenerationService::generate(Request request, OnToken on_token, OnDone on_done) {
  std::vector<Request> one;
  one.push_back(std::move(request));
  OnTokenOf token;
  if (on_token) token = [on_token = std::move(on_token)](std::size_t, const GeneratedToken& t) { return on_token(t); };
  return generate_all(std::move(one), std::move(token),
                      [on_done = std::move(on_done)](std::size_t, Generation&& g) {
                        if (on_done) on_done(std::move(g));
                      })
      .front();
}

std::vector<std::uint64_t> GenerationService::generate_all(std::vector<Request> requests, OnTokenOf on_token, OnDoneOf on_done) {
  for (const Request& request : requests) check(request);
  if (requests.empty()) return {};
  std::vector<Begun> begun;
  for (Request& request : requests) {
    if (!request.account) request.account = own_account_;
    begun.push_back({request.account, request.is_stream});
  }
  reserve(requests.size());
  std::vector<std::uint64_t> ids(requests.size());
  for (std::uint64_t& id : ids) id = next_id_++;
  const auto open = static_cast<std::int64_t>(requests.size());
  std::uint64_t prompt_tokens = 0;
  for (const Request& request : requests) prompt_tokens += request.prompt.size();
  try {
    post(
        [this, began = std::chrono::steady_clock::now(), ids, requests = std::move(requests), on_token = std::move(on_token),
         on_done = std::move(on_done)]() mutable {
          for (std::size_t i = 0; i < ids.size(); ++i) {
            OnToken token;
            if (on_token) token = [on_token, i](const GeneratedToken& t) { return on_token(i, t); };
            begin(
                ids[i], std::move(requests[i]), std::move(token), [on_done, i](Generation&& g) { on_done(i, std::move(g)); }, began);
          }
        },
        begun);
  } catch (...) {
    open_ -= open;
    throw;
  }
  statistics_.requests += ids.size();
  statistics_.prompt_tokens += prompt_tokens;
  count_tokens(begun.front(), prompt_tokens);
  return ids;
}

void GenerationService::begin(std::uint64_t id, Request&& request, OnToken&& on_token, OnDone&& on_done, std::chrono::steady_clock::time_point began) {
  requests_.emplace(id, Open{.begun = {request.account, request.is_stream}, .on_done = std::move(on_done), .began = began});
  if (!request.adapter && !request.weights) request.adapter = adapter_;
  Engine::OnToken token;
  if (on_token)
    token = [this, id, on_token = std::move(on_token)](std::uint64_t engine_id, const GeneratedToken& t) mutable {
      const auto open = requests_.find(id);
      if (open != requests_.end() && open->second.told++ == 0) statistics_.first_token_seconds.observe(seconds_since(open->second.began));
      statistics_.generated_tokens.fetch_add(1, std::memory_order_relaxed);
      bool more = false;
      guarded("on_token", [&] { more = on_token(t); });
      if (more) return;
      if (const auto it = requests_.find(id); it != requests_.end()) it->second.enough = true;
      engine_->cancel(engine_id);
    };
  try {
    const std::uint64_t engine_id = engine_->submit(std::move(request), std::move(token), [this, id](Generation&& g) { finish(id, std::move(g)); });
    if (const auto it = requests_.find(id); it != requests_.end()) it->second.engine_id = engine_id;
  } catch (const std::exception& e) {
    Generation failed;
    failed.finish = FinishReason::error;
    failed.error = e.what();
    finish(id, std::move(failed));
  }
}

// What on_token has not counted: callers that want the whole at the end alone have none.
void GenerationService::count_generation(const Open& open, Generation& generation) {
  generation.times.taken = open.began;
  const auto seconds_to = [&](GenerationTimes::Point point) { return std::chrono::duration<double>(point - open.began).count(); };
  if (generation.times.began != GenerationTimes::Point{}) statistics_.queue_seconds.observe(seconds_to(generation.times.began));
  if (open.told == 0 && !generation.tokens.empty()) statistics_.first_token_seconds.observe(seconds_to(generation.times.first_token));
  if (generation.tokens.size() > open.told) statistics_.generated_tokens.fetch_add(generation.tokens.size() - open.told, std::memory_order_relaxed);
}

void GenerationService::finish(std::uint64_t id, Generation&& generation) {
  auto node = requests_.extract(id);
  if (node.empty()) return;
  generation.id = id;
  count_generation(node.mapped(), generation);
  count_tokens(node.mapped().begun, generation.tokens.size());
  if (node.mapped().enough && generation.finish != FinishReason::error) generation.finish = FinishReason::stop;
  --open_;
  {
    const std::lock_guard lock(mutex_);
    Turn& turn = turns_.at(node.mapped().begun.account.get());
    --turn.open;
    turn.streams -= node.mapped().begun.is_stream;
  }
  switch (generation.finish) {
    case FinishReason::stop:
      ++statistics_.stopped;
      break;
    case FinishReason::length:
      ++statistics_.length;
      break;
    case FinishReason::none:
    case FinishReason::cancelled:
      ++statistics_.cancelled;
      break;
    case FinishReason::error:
      ++statistics_.failed;
      break;
  }
  statistics_.seconds.observe(seconds_since(node.mapped().began));
  if (node.mapped().on_done) guarded("on_done", [&] { node.mapped().on_done(std::move(generation)); });
}

void GenerationService::cancel(std::uint64_t id) {
  const auto command = [this, id] {
    if (const auto it = requests_.find(id); it != requests_.end()) engine_->cancel(it->second.engine_id);
  };
  if (model_.executor->inside() && requests_.contains(id)) return command();
  try {  // behind the command that begins it
    post(command);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::cancelled) throw;  // a stopped service has no open request
  }
}

void GenerationService::set_weights(std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter) {
  post([this, weights = std::move(weights), adapter = std::move(adapter)] {
    guarded("set_weights", [&] {
      engine_->set_weights(weights);
      adapter_ = adapter;
      version_ = adapter ? adapter->version : weights->version;
    });
  });
}

void GenerationService::run_commands() {
  std::vector<std::function<void()>> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (auto& command : commands) command();
}

void GenerationService::run_after_step() {
  if (after_step_.empty()) return;
  {
    const Burst burst;  // what they send wakes a sender once
    // What they call may add others.
    while (!after_step_.empty()) {
      const std::vector<std::function<void()>> callbacks = std::exchange(after_step_, {});
      for (const auto& callback : callbacks) guarded("after_step", callback);
    }
  }
  // Senders go before the next step: it keeps every processor busy, and they would wait for a tick of the system's clock.
  std::this_thread::yield();
}

// In the turn of one account; the engine's step is everybody's.
bool GenerationService::step(ShareAccount* whose) {
  model_.executor->tell("command");
  run_commands();
  const auto is_open = [&] {
    const std::lock_guard lock(mutex_);
    const auto turn = turns_.find(whose);
    if (turn->second.open > 0) return true;
    turns_.erase(turn);
    return false;
  };
  // What it had may have ended in the turns of others.
  if (!is_open()) return run_after_step(), false;
  step_engine();
  run_after_step();
  return is_open();
}

void GenerationService::step_engine() {
  try {
    engine_->step();
    failures_ = 0;
  } catch (const std::exception& e) {
    // The engine starts its requests over; what fails twice in a row would fail for ever.
    log_error("a step of the engine failed", {{"model", model_.name}, {"reason", e.what()}});
    if (++failures_ >= 2) fail_all(e.what());
  }
  std::vector<Executor::Part> parts;
  for (const Engine::AccountRows& one : engine_->rows_of_step()) parts.push_back({one.account, static_cast<double>(one.rows)});
  model_.executor->tell("forward", std::move(parts));
}

void GenerationService::count_tokens(const Begun& whose, std::size_t tokens) const {
  if (options_.count_tokens && whose.is_stream && tokens > 0) options_.count_tokens(whose.account->key, static_cast<std::int64_t>(tokens));
}

void GenerationService::fail_all(const std::string& message) {
  failures_ = 0;
  std::vector<std::uint64_t> ids;
  for (const auto& [id, open] : requests_) ids.push_back(id);
  for (const std::uint64_t id : ids) {
    const auto it = requests_.find(id);
    if (it == requests_.end()) continue;
    const std::uint64_t engine_id = it->second.engine_id;
    Generation failed;
    failed.finish = FinishReason::error;
    failed.error = message;
    finish(id, std::move(failed));
    engine_->cancel(engine_id);  // its own on_done finds nobody
  }
}

void GenerationService::stop() {
  std::vector<std::shared_ptr<ShareAccount>> accounts;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    for (const auto& [whose, turn] : turns_) accounts.push_back(turn.account);
    commands_.push_back([this] {
      std::vector<std::uint64_t> engine_ids;
      for (const auto& [id, open] : requests_) engine_ids.push_back(open.engine_id);
      for (const std::uint64_t id : engine_ids) engine_->cancel(id);
    });
  }
  try {
    model_.executor
        ->run(own_account_,
              [this] {
                run_commands();
                run_after_step();
              })
        .get();
    // Behind the items of those who had requests: none of ours is in the executor after that.
    for (const std::shared_ptr<ShareAccount>& account : accounts) model_.executor->run(account, [] {}).get();
  } catch (const std::exception&) {
    model_.executor->stop();  // it is stopping, and did not take this: nobody is on the device after it
    run_commands();
    run_after_step();
  }
}

EngineCounters GenerationService::counters() {
  auto counted = std::make_shared<std::promise<EngineCounters>>();
  post([this, counted] { counted->set_value(engine_->counters()); });
  return counted->get_future().get();
}

std::vector<WaitingSequences> GenerationService::waiting_sequences() const {
  std::map<std::pair<WorkClass, std::string>, std::int64_t> counts;
  for (const Sequence* s : engine_->scheduler().waiting_ones()) ++counts[{s->account->work, model_.executor->told(*s->account)}];
  std::vector<WaitingSequences> all;
  for (const auto& [whose, count] : counts) all.push_back({whose.first, whose.second, count});
  return all;
}

void GenerationService::snapshot(std::function<void(const ServiceSnapshot&)> callback) {
  post([this, callback = std::move(callback)] {
    const MemoryAccounts& memory = model_.runtime->backend.device().memory();
    const PageAllocator& pages = engine_->scheduler().pages();
    guarded("snapshot", [&] {
      callback({.counters = engine_->counters(),
                .running = engine_->running(),
                .waiting = engine_->waiting(),
                .pages = pages.total(),
                .free_pages = pages.free_pages(),
                .cache_bytes = memory.current(MemoryCategory::cache),
                .weight_bytes = memory.current(MemoryCategory::weights),
                .workspace_bytes = memory.current(MemoryCategory::workspace),
                .waiting_by_key = waiting_sequences()});
    });
  });
}

}  // namespace lockstep
