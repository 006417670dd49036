#include "serving/serving.h"

#include <future>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/engine.h"
#include "serving/guarded_call.h"

namespace lockstep {
namespace {
std::vector<WaitingSequences> waiting_sequences(const Engine& engine, const Executor& executor) {
  std::map<std::pair<WorkClass, std::string>, std::int64_t> counts;
  for (const Sequence* s : engine.scheduler().waiting()) ++counts[{s->account->work, executor.told(*s->account)}];
  std::vector<WaitingSequences> all;
  for (const auto& [whose, count] : counts) all.push_back({whose.first, whose.second, count});
  return all;
}

std::vector<DevicePart> parts_of(const std::vector<AccountRows>& rows) {
  std::vector<DevicePart> parts;
  for (const AccountRows& one : rows) parts.push_back({one.account, static_cast<double>(one.rows)});
  return parts;
}

Generation ended_generation(FinishReason finish, std::string message = {}) {
  Generation ended;
  ended.finish = finish;
  ended.error = std::move(message);
  return ended;
}
}  // namespace

GenerationService::GenerationService(ServingModel model, const ServingOptions& options)
    : options_(options),
      runtime_(model.runtime),
      executor_(model.executor ? model.executor : std::make_shared<Executor>()),
      model_(model, options.grammar_bytes),
      counts_(statistics_, options.count_tokens),
      own_account_(executor_->account(options.priority)),
      bounds_(model.name, options.max_open, statistics_.refused),
      callers_(executor_, options.share_prefixes),
      turns_(
          model.name, executor_, own_account_, [this](const OnExecutor& on) { step(on); },
          [this](const OnExecutor& on) { return parts_of(running_.at(on).engine->take_rows()); }) {
  // The device is the executor's from here on.
  const bool layer = model.mtp_weights && options_.engine.drafts.has(DraftKind::mtp);
  const std::uint64_t version = model.weights->version;
  run_on(*executor_, options_.priority, [&](const OnExecutor& on) {
    std::unique_ptr<Engine>& engine = running_.at(on).engine;
    engine = std::make_unique<Engine>(*runtime_, std::exchange(model.weights, nullptr), options_.engine, layer ? model.mtp_weights() : nullptr);
    weights_ = std::make_unique<ServedWeights>(*engine, turns_, version);
    limits_ = engine->limits();
  }).get();
  drafts_with_layer_ = layer;
  adapters_ = std::make_unique<NamedAdapters>(runtime_, executor_, model.name, options_.adapters, options_.engine.ranks.size());
}

GenerationService::~GenerationService() {
  stop();
  release_on(*executor_, options_.priority, [this](const OnExecutor& on) { weights_.reset(), running_.at(on).engine.reset(); });
}

std::uint64_t GenerationService::generate(Request request, OnToken on_token, OnDone on_done) {
  std::vector<Request> one;
  one.push_back(std::move(request));
  OnTokenOf token;
  if (on_token) token = [on_token = std::move(on_token)](const OnExecutor&, std::size_t, const GeneratedToken& t) { return on_token(t); };
  return generate_all(std::move(one), std::move(token),
                      [on_done = std::move(on_done)](const OnExecutor&, std::size_t, Generation&& g) {
                        if (on_done) on_done(std::move(g));
                      })
      .front();
}

std::vector<std::uint64_t> GenerationService::generate_all(std::vector<Request> requests, OnTokenOf on_token, OnDoneOf on_done, OnPartOf on_part) {
  for (const Request& request : requests) check(request);
  if (requests.empty()) return {};
  std::vector<RequestOwner> owners;
  std::uint64_t prompt_tokens = 0;
  for (Request& request : requests) {
    if (!request.account) request.account = own_account_;
    owners.push_back({request.account, request.is_stream});
    prompt_tokens += request.prompt.size();
  }
  bounds_.take(owners);
  counts_.taken(owners.front(), owners.size(), prompt_tokens);  // before its answer can be there
  std::vector<std::uint64_t> ids(requests.size());
  for (std::uint64_t& id : ids) id = next_id_++;
  try {
    turns_.post(
        [this, taken = std::chrono::steady_clock::now(), ids, owners, requests = std::move(requests), on_token = std::move(on_token),
         on_done = std::move(on_done), on_part = std::move(on_part)](const OnExecutor& on) mutable {
          for (std::size_t i = 0; i < ids.size(); ++i) {
            Open open{.counted = {owners[i], taken}};
            if (on_token)
              open.on_token = std::make_shared<const std::function<bool(const OnExecutor&, const GeneratedToken&)>>(
                  [on_token, i](const OnExecutor& step, const GeneratedToken& t) { return on_token(step, i, t); });
            if (on_part) open.on_part = [on_part, i](const OnExecutor& step, Generation& part) { return on_part(step, i, part); };
            open.on_done = [on_done, i](const OnExecutor& step, Generation&& g) { on_done(step, i, std::move(g)); };
            counts_.begun(on, open.counted);
            running_.at(on).requests.emplace(ids[i], std::move(open));
            submit(on, ids[i], std::move(requests[i]));
          }
        },
        owners);
  } catch (...) {
    bounds_.give_back(owners);
    throw;
  }
  return ids;
}

void GenerationService::submit(const OnExecutor& on, std::uint64_t id, Request&& request) {
  Running& running = running_.at(on);
  const auto known = running.requests.find(id);
  if (known == running.requests.end()) return;  // it was held, went on, and was cancelled before that
  if (!request.adapter && !request.weights) request.adapter = weights_->adapter();
  Engine::OnToken token;
  if (known->second.on_token)
    token = [this, id, on_token = known->second.on_token](std::uint64_t engine_id, const GeneratedToken& t) {
      const OnExecutor step(*executor_);
      Running& now = running_.at(step);
      const auto open = now.requests.find(id);
      if (open != now.requests.end()) counts_.told(step, open->second.counted);
      bool more = false;
      guarded_call("on_token", [&] { more = (*on_token)(step, t); });
      if (more) return;
      if (const auto it = now.requests.find(id); it != now.requests.end()) it->second.enough = true;
      now.engine->cancel(engine_id);
    };
  try {
    const std::uint64_t engine_id =
        running.engine->submit(std::move(request), std::move(token), [this, id](Generation&& g) { finish(OnExecutor(*executor_), id, std::move(g)); });
    if (const auto it = running.requests.find(id); it != running.requests.end()) it->second.engine_id = engine_id;
  } catch (const std::exception& e) {
    finish(on, id, ended_generation(FinishReason::error, e.what()));
  }
}

void GenerationService::finish(const OnExecutor& on, std::uint64_t id, Generation&& generation) {
  auto& requests = running_.at(on).requests;
  const auto known = requests.find(id);
  if (known == requests.end()) return;
  generation.id = id;
  if (known->second.enough && generation.finish != FinishReason::error) generation.finish = FinishReason::stop;
  if (Open& open = known->second; open.enough && open.on_part && generation.finish != FinishReason::error) {
    // The engine has ended it, and its caller may not have: then it is held.
    guarded_call("on_part", [&] { open.held = open.on_part(on, generation); });
    if (open.held) {
      counts_.held(on, open.counted, generation);
      turns_.ended(open.counted.owner);
      open.enough = open.in_turns = false;
      open.engine_id = 0;
      return;
    }
  }
  const auto node = requests.extract(known);
  Open& open = node.mapped();
  if (open.held) counts_.resumed(on, open.counted, {});
  counts_.ended(on, open.counted, generation);
  bounds_.give_back({&open.counted.owner, 1});
  if (open.in_turns) turns_.ended(open.counted.owner);
  if (open.on_done) guarded_call("on_done", [&] { open.on_done(on, std::move(generation)); });
}

void GenerationService::resume(std::uint64_t id, std::function<Resumption(const OnExecutor& on, bool held)> decide) {
  turns_.post([this, id, decide = std::move(decide)](const OnExecutor& on) {
    auto& requests = running_.at(on).requests;
    const auto known = requests.find(id);
    const bool held = known != requests.end() && known->second.held;
    Resumption next;
    guarded_call("resume", [&] { next = decide(on, held); });
    if (!held || next.kind == Resumption::Kind::stays) return;
    Open& open = known->second;
    if (next.kind == Resumption::Kind::ends) return finish(on, id, ended_generation(next.finish, std::move(next.error)));
    counts_.resumed(on, open.counted, next);
    next.next.account = open.counted.owner.account;
    open.held = false;
    open.in_turns = true;
    try {
      turns_.post([this, id, request = std::move(next.next)](const OnExecutor& step) mutable { submit(step, id, std::move(request)); },
                  {&open.counted.owner, 1});
    } catch (const Error&) {  // the service stops, and cancels it
      open.in_turns = false;
    }
  });
}

void GenerationService::cancel(std::uint64_t id) {
  const auto command = [this, id](const OnExecutor& on) {
    Running& running = running_.at(on);
    const auto known = running.requests.find(id);
    if (known == running.requests.end()) return false;
    if (known->second.engine_id == 0) finish(on, id, ended_generation(FinishReason::cancelled));
    else running.engine->cancel(known->second.engine_id);
    return true;
  };
  if (executor_->inside() && command(OnExecutor(*executor_))) return;
  try {  // behind the command that begins it
    turns_.post(command);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::cancelled) throw;  // a stopped service has no open request
  }
}

void GenerationService::step(const OnExecutor& on) {
  Running& running = running_.at(on);
  try {
    running.engine->step();
    running.failures = 0;
  } catch (const std::exception& e) {
    // The engine starts its requests over; what fails twice in a row would fail for ever.
    log_error("a step of the engine failed", {{"model", model_.name()}, {"reason", e.what()}});
    if (++running.failures >= 2) {
      running.failures = 0;
      std::vector<std::uint64_t> ids;
      for (const auto& [id, open] : running.requests) ids.push_back(id);
      for (const std::uint64_t id : ids) {
        const auto known = running.requests.find(id);
        if (known == running.requests.end() || known->second.held) continue;  // what is held was in none of those steps
        const std::uint64_t engine_id = known->second.engine_id;
        finish(on, id, ended_generation(FinishReason::error, e.what()));
        running.engine->cancel(engine_id);  // its own on_done finds nobody
      }
    }
  }
}

void GenerationService::stop() {
  turns_.stop([this](const OnExecutor& on) {
    Running& running = running_.at(on);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ids;
    for (const auto& [id, open] : running.requests) ids.emplace_back(id, open.engine_id);
    for (const auto& [id, engine_id] : ids)
      if (engine_id == 0) finish(on, id, ended_generation(FinishReason::cancelled));
      else running.engine->cancel(engine_id);
  });
}

EngineCounters GenerationService::counters() {
  auto counted = std::make_shared<std::promise<EngineCounters>>();
  turns_.post([this, counted](const OnExecutor& on) { counted->set_value(running_.at(on).engine->counters()); });
  return counted->get_future().get();
}

void GenerationService::snapshot(std::function<void(const ServiceSnapshot&)> callback) {
  turns_.post([this, callback = std::move(callback)](const OnExecutor& on) {
    const Engine& engine = *running_.at(on).engine;
    const MemoryAccounts& memory = runtime_->backend.device().memory();
    const PageAllocator& pages = engine.scheduler().pages();
    guarded_call("snapshot", [&] {
      callback({.counters = engine.counters(),
                .running = engine.running(),
                .waiting = engine.waiting(),
                .pages = pages.total(),
                .free_pages = pages.free_pages(),
                .cache_bytes = memory.current(MemoryCategory::cache),
                .weight_bytes = memory.current(MemoryCategory::weights),
                .workspace_bytes = memory.current(MemoryCategory::workspace),
                .waiting_by_key = waiting_sequences(engine, *executor_)});
    });
  });
}

}  // namespace lockstep
