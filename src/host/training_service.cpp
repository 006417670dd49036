#include "host/operation.h"

#include <algorithm>

#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/output_path.h"
#include "base/server_paths.h"

namespace lockstep {
namespace {
std::unique_ptr<FolderLock> locked(const std::filesystem::path& folder) {
  claim_folder(folder, "state", {"lockstep.db"});
  return std::make_unique<FolderLock>(folder);
}

// Files there have no name; what has one was left by a server that was killed at that moment.
std::string emptied(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (!error) std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder.string(), error.message());
  return folder.string();
}

constexpr std::size_t kLongestReason = 512;  // of what is kept of a model that could not be made

[[noreturn]] void fail_unknown(const char* what, const std::string& id) { fail(ErrorCode::not_found, "there is no {} '{}'", what, id); }
}  // namespace

TrainingService::TrainingService(std::shared_ptr<TrainingBase> base, std::shared_ptr<GenerationService> generation, const TrainingServiceOptions& options)
    : base_(std::move(base)),
      generation_(std::move(generation)),
      options_(options),
      lock_(locked(options.state)),
      numbers_(options.state / "numbers"),
      feed_(deadlines_),
      futures_(deadlines_, store_ = std::make_shared<TrainingStore>(options.state), most_result_bytes(*base_)),
      sessions_(store_, limit_of(options.max_sessions)),
      control_(*this, store_, options.state, options.key_share),
      cache_(base_->executor, options.sampler_bytes),
      queue_(std::make_shared<TrainingQueue>(base_->executor, options.share_passes ? options.tokens_a_step : 0)),
      numbers_seen_(limit_of(options.max_numbers)),
      unmade_(limit_of(options.max_unmade)),
      copies_(limit_of(options.max_numbers)) {
  if (options.offload_optimizer) base_->optimizer_folder = emptied(options.state / "optimizer");
  claim_fixed_room();
  base_->kept = std::make_shared<KeptPasses>(options.reuse_bytes, limited_ ? base_->ledger : nullptr);
  load_records();
}

TrainingService::~TrainingService() { stop(); }

void TrainingService::load_records() {
  store_->each("checkpoint", [&](const std::string& path, const std::string& document) { checkpoints_[path] = checkpoint_record(TrainingJson::parse(document)); });
  store_->each("model", [&](const std::string& id, const std::string& document) {
    const auto model = std::make_shared<Model>();
    model->record = model_record(TrainingJson::parse(document));
    model->acknowledged = numbers_.last(folder_of_id(id));  // what was not done of these went down with the server
    model->next = std::max(model->record.next_sequence, model->acknowledged + 1);
    if (model->record.changed)
      model->lost = fmt::format("the server ended before it could write down model '{}' ({} optimizer steps); load_state of a checkpoint goes on from there", id, model->record.steps);
    models_[id] = model;
  });
  store_->each("sampler", [&](const std::string& id, const std::string& document) {
    const auto sampler = std::make_shared<Sampler>();
    sampler->record = sampler_record(TrainingJson::parse(document));
    samplers_[id] = sampler;
  });
  load_custom_losses();
  if (!models_.empty()) log_info("training state read", {{"sessions", sessions_.count()}, {"models", models_.size()}, {"checkpoints", checkpoints_.size()}});
}

void TrainingService::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  // What has been acknowledged is done; a gap in the numbers is never filled any more.
  while (queue_->waiting() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  futures_.stop();
  feed_.stop();
  try {
    base_->executor->run(WorkPriority::training, [this] {
      for (const auto& [id, model] : models_) {
        try {
          write_living(*model);
          const std::lock_guard lock(mutex_);
          if (model->lost.empty()) keep(model->record);  // its numbers, also where nothing else changed
        } catch (const std::exception& e) {
          log_error("a model could not be written down", {{"model", id}, {"reason", e.what()}});
        }
        forget_waiting(*model, {});
        let_go(*model);
        const std::lock_guard lock(mutex_);
        model->inflight = {};
      }
      spill_samplers(0);
      const std::lock_guard lock(mutex_);
      for (const auto& [id, sampler] : samplers_) sampler->weights = {};
      cache_.clear();
    }).get();
  } catch (const std::exception& e) {
    log_error("the training service did not stop cleanly", {{"reason", e.what()}});
  }
}

void TrainingService::check_metadata(const std::string& field, const KeptJson& value) const {
  if (value.bytes() > options_.metadata_bytes)
    fail(ErrorCode::invalid_argument, "{} has {} bytes of JSON, allowed are {} (--metadata-kilobytes)", field, value.bytes(), options_.metadata_bytes);
}

void TrainingService::check_metadata_room(const std::string& owner, std::int64_t more) const {
  constexpr std::int64_t kLittle = 64;  // the limits on what it is of hold that
  if (more <= kLittle) return;
  std::int64_t all = 0, own = 0;
  const auto count = [&](const std::string& whose, std::int64_t bytes) {
    all += bytes;
    if (whose == owner) own += bytes;
  };
  sessions_.each_metadata(count);
  for (const auto& [id, one] : models_) count(one->record.owner, one->record.settings.user_metadata.bytes());
  for (const auto& [path, one] : checkpoints_) count(one.owner, one.user_metadata.bytes() + one.settings.user_metadata.bytes());
  limit_of(metadata_room_).check_bytes(all, own, more, "user_metadata and tags", "give things less of it, or delete checkpoints", "--key-share, --memory-megabytes");
}

bool TrainingService::is_base(const std::string& name) const { return base_->is_called(name); }

void TrainingService::check_base(const std::string& name) const {
  if (!is_base(name)) fail(ErrorCode::not_found, "base_model is '{}', allowed are {}{}", name, fmt::join(base_->names, ", "), did_you_mean(name, base_->names));
}

// --- shares of the limits

void TrainingService::check_key_models(const std::string& owner) const {
  std::int64_t all = 0, own = 0;
  for (const auto& [id, model] : models_)
    ++all, own += model->record.owner == owner;
  limit_of(options_.max_kept_models).check_room(all, own, "models", "unload some");
}

void TrainingService::check_held(const Model& wanted) {
  std::int64_t held = 0;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, model] : models_)
    held += model.get() != &wanted && model->record.owner == wanted.record.owner && model->trained && (model->record.open_gradients || !model->early.empty());
  limit_of(options_.max_models).check_room(0, held, "models in memory with gradients that no optim_step has taken", "step or unload some", "--key-share, --max-models");
}

// --- sessions

std::string TrainingService::create_session(const std::string& owner, const SessionRecord& wanted) {
  sweep();
  const std::lock_guard lock(mutex_);
  if (stopping_) fail(ErrorCode::cancelled, "the server stops");
  if (const std::string same = sessions_.again(owner, wanted); !same.empty()) return same;
  check_metadata("user_metadata", wanted.user_metadata);
  check_metadata("tags", wanted.tags);
  check_metadata_room(owner, wanted.user_metadata.bytes() + wanted.tags.bytes());
  check_short_text("display_name", wanted.display_name);
  check_short_text("project_id", wanted.project);
  return sessions_.create(owner, wanted);
}

void TrainingService::heartbeat(const std::string& owner, const std::string& id) {
  if (!sessions_.hear(owner, id)) fail_unknown("session", id);
  check_gaps(id);
  sweep();
}

// --- models

std::shared_ptr<TrainingService::Model> TrainingService::find_model(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(id);
  if (const std::string* why = found == models_.end() ? unmade_.find(owner, id, 0) : nullptr) fail(ErrorCode::not_found, "{}", *why);
  if (found == models_.end() || found->second->record.owner != owner) fail_unknown("model", id);
  return found->second;
}

ModelRecord TrainingService::model(const std::string& owner, const std::string& id) {
  const std::shared_ptr<Model> found = find_model(owner, id);
  const std::lock_guard lock(mutex_);
  return found->record;
}

std::vector<ModelRecord> TrainingService::models(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  std::vector<ModelRecord> out;
  for (const auto& [id, model] : models_)
    if (model->record.owner == owner) out.push_back(model->record);
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.created > b.created; });
  return out;
}

void TrainingService::keep(const ModelRecord& record) { store_->put("model", record.id, to_json(record).dump()); }

std::string TrainingService::model_id(const CreateModel& wanted) {
  const bool run = wanted.session.starts_with("ts-") && !wanted.settings.base_only;
  return fmt::format("{}:train:{}", run ? "run-" + sha256_hex(fmt::format("{}:{}", wanted.session, wanted.number)).substr(0, 32) : wanted.session, wanted.number);
}

std::string TrainingService::create_model(const std::string& owner, const CreateModel& wanted, Encode<ModelRecord> encode) {
  sessions_.find(owner, wanted.session);
  const std::string id = model_id(wanted);
  std::string request;
  std::shared_ptr<Model> model;
  std::unique_lock lock(mutex_);  // until it is in its lane: who stops waits for what is there
  if (stopping_) fail(ErrorCode::cancelled, "the server stops");
  const std::string scope = "create " + wanted.session;
  if (const std::string* same = numbers_seen_.find(owner, scope, wanted.number)) return *same;
  request = futures_.create(owner, id);
  numbers_seen_.put(owner, scope, wanted.number, request);
  try {
    check_key_models(owner);
    check_metadata_room(owner, wanted.settings.user_metadata.bytes());
  } catch (const Error& e) {
    lock.unlock();
    futures_.fail(request, e);
    return request;
  }
  if (!models_.contains(id)) {
    unmade_.forget(id);
    model = models_[id] = std::make_shared<Model>();
    model->record.id = id;
    model->record.session = wanted.session;
    model->record.owner = owner;
    model->record.number = wanted.number;
    model->record.settings = wanted.settings;
    model->record.created = model->record.used = unix_now();
  }
  if (!model) {
    lock.unlock();
    futures_.fail(request, Error(ErrorCode::already_exists, fmt::format("model '{}' exists already", id)));
    return request;
  }
  queue_->submit(id, [this, model, request, owner, wanted, encode = std::move(encode)] {
    try {
      ModelSettings settings = model->record.settings;  // written here alone, and under the lock
      std::optional<CheckpointRecord> from;
      if (!wanted.from.empty()) {
        from = checkpoint_at(owner, wanted.from);
        const std::string base_model = settings.base_model.empty() ? from->settings.base_model : settings.base_model;
        const KeptJson metadata = settings.user_metadata;
        const std::string optimizer = wanted.with_optimizer ? from->settings.optimizer : settings.optimizer;
        settings = from->settings;
        settings.optimizer = optimizer;
        settings.base_model = base_model;
        settings.user_metadata = metadata;
      }
      const std::optional<PromotedModel> promoted = control_.models.find(owner, settings.base_model);
      if (promoted && (promoted->adapter() || settings.rank > 0 || settings.base_only))
        fail(ErrorCode::unsupported, "base_model '{}' is a promoted model; allowed are whole weights, all of them trained (rank 0); load_adapter takes a promoted adapter", settings.base_model);
      if (!promoted) check_base(settings.base_model);
      optimizer_family(settings);
      rest_idle_models(*model);
      if (settings.rank > 0 && !settings.seed) settings.seed = random_seed();
      model->room = model_room(*model, settings);
      const TurnRoom reading = from || promoted ? reading_room(settings, fmt::format("reading the weights of model '{}'", model->record.id)) : TurnRoom();
      model->trained = make_trained_model(*base_, settings);
      if (from) {
        if (wanted.with_optimizer && !from->optimizer) fail(ErrorCode::invalid_argument, "the checkpoint {} has no optimizer state", from->path());
        model->trained->restore(read_checkpoint(*from, model->trained->manifest()), wanted.with_optimizer);
      }
      if (promoted && !from) {
        control_.check_profile_of(*promoted);
        TrainingCheckpoint begin{.masters = load_model_folder(control_.folder(*promoted)).masters, .profile_digest = base_->opened.runtime->profile.digest()};
        begin.first_moments.resize(begin.masters.size());
        begin.second_moments.resize(begin.masters.size());
        model->trained->restore(std::move(begin), false);
      }
      ModelRecord record;
      {
        const std::lock_guard lock(mutex_);
        model->record.settings = settings;
        model->record.steps = model->trained->steps();
        model->record.changed = from.has_value() || promoted.has_value();
        record = model->record;
      }
      keep(record);
      futures_.resolve(request, encode(record));
    } catch (const std::exception& e) {
      let_go(*model);
      {
        const std::lock_guard lock(mutex_);
        numbers_.forget(folder_of_id(model->record.id));
        model->unmade = model->lost = fmt::format("model '{}' could not be made: {}", model->record.id, without_server_paths(e.what()).substr(0, kLongestReason));
        unmade_.put(model->record.owner, model->record.id, 0, model->unmade);  // all that is left of it
        models_.erase(model->record.id);
      }
      futures_.fail(request, e);
      forget_waiting(*model, model->unmade);  // what came with it, and would wait for numbers that never come
    }
    return false;
  });
  return request;
}

std::string TrainingService::unload_model(const std::string& owner, const std::string& id, Encode<ModelRecord> encode) {
  const std::shared_ptr<Model> model = find_model(owner, id);
  const std::lock_guard lock(mutex_);
  if (stopping_) fail(ErrorCode::cancelled, "the server stops");
  const std::string request = futures_.create(owner, id);
  queue_->submit(id, [this, model, request, encode = std::move(encode)] {
    let_go(*model);
    ModelRecord record;
    {
      const std::lock_guard lock(mutex_);
      model->inflight = {};
      model->lost = fmt::format("model '{}' was unloaded", model->record.id);
      record = model->record;
      models_.erase(record.id);
      numbers_seen_.forget(record.id);
    }
    store_->remove("model", record.id);
    numbers_.forget(folder_of_id(record.id));
    std::error_code ignored;
    std::filesystem::remove_all(living_folder(record), ignored);
    forget_waiting(*model, model->lost);
    futures_.forget(record.id);
    futures_.resolve(request, encode(record));
    return false;
  });
  return request;
}

void TrainingService::drop_models(const std::string& owner, const std::string& session) {
  for (const ModelRecord& model : models(owner))
    if (model.session == session) drop_model(model);
}

void TrainingService::drop_model(const ModelRecord& model) {
  try {
    unload_model(model.owner, model.id, [](const ModelRecord&) { return Outcome{"application/json", "{}", {}, {}}; });
  } catch (const Error& e) {
    if (e.code() != ErrorCode::not_found) throw;  // its client was faster
  }
}

// --- the order of operations

std::string TrainingService::submit(const std::string& owner, const std::string& id, std::int64_t sequence, Work work, bool heals) {
  return place(owner, id, sequence, [&](const std::shared_ptr<Model>& model, const std::string& request) {
    return std::make_shared<Operation>(*this, model, request, sequence, std::move(work), heals);
  });
}

std::string TrainingService::place(const std::string& owner, const std::string& id, std::int64_t sequence, const MakeOperation& make) {
  const std::shared_ptr<Model> model = find_model(owner, id);
  std::string request;
  {
    const std::lock_guard lock(mutex_);
    if (!model->unmade.empty()) fail(ErrorCode::not_found, "{}", model->unmade);  // since it was found
    if (const std::string* same = numbers_seen_.find(owner, id, sequence)) return *same;
    if (const auto same = model->waiting.find(sequence); same != model->waiting.end()) return same->second->request();
    if (stopping_) fail(ErrorCode::cancelled, "the server stops; try again when it is back");
    if (sequence < 1) fail(ErrorCode::invalid_argument, "seq_id is {}, allowed is 1 and up", sequence);
    if (static_cast<std::int64_t>(model->waiting.size()) >= options_.max_pending)
      fail(ErrorCode::resource_exhausted, "model '{}' has {} operations waiting, allowed are {}", id, model->waiting.size(), options_.max_pending);
    if (sequence > model->acknowledged) {
      numbers_.note(folder_of_id(id), sequence);
      model->acknowledged = sequence;
    }
    request = futures_.create(owner, id);
    numbers_seen_.put(owner, id, sequence, request);
    model->record.used = unix_now();
    sessions_.hear(owner, model->record.session);
    if (model->lost.empty() && sequence < model->next) {
      futures_.fail(request, Error(ErrorCode::io, fmt::format("seq_id {} of model '{}' was used before, or lies before one that was; its result is not known any more", sequence, id)));
      return request;
    }
    std::shared_ptr<Operation> operation = make(model, request);
    statistics_.arrived(model->activity);
    if (!model->lost.empty()) {
      model->next = std::max(model->next, sequence + 1);  // numbers before it went down with the server
      queue_->submit(id, std::move(operation));
      return request;
    }
    if (!operation->may_run_early()) {
      for (auto later = model->waiting.upper_bound(sequence); later != model->waiting.end(); ++later) later->second->do_not_run_early();
    } else if (sequence > model->next &&
               std::all_of(model->waiting.begin(), model->waiting.lower_bound(sequence), [](const auto& before) { return before.second->may_run_early(); })) {
      operation->enter_early();
      queue_->submit(id, operation);
    }
    model->waiting[sequence] = std::move(operation);
  }
  run_ready(model);
  return request;
}

void TrainingService::run_ready(const std::shared_ptr<Model>& model) {
  const std::lock_guard lock(mutex_);
  for (auto first = model->waiting.begin(); first != model->waiting.end() && first->first == model->next; first = model->waiting.begin()) {
    std::shared_ptr<Operation> operation = std::move(first->second);
    model->waiting.erase(first);
    ++model->next;
    if (!operation->may_run_early() && !model->waiting.empty()) {
      // It may change what later numbers have been computed with.
      for (const auto& [number, later] : model->waiting) later->do_not_run_early();
      queue_->submit(model->record.id, [this, model] { return undo_early(*model), false; });
    }
    queue_->submit(model->record.id, std::move(operation));
  }
  model->gap_since = model->waiting.empty() ? 0 : unix_now();
}

// Operations whose turn can never come hold their model no longer; `why`, if it is not empty, is told their clients.
void TrainingService::forget_waiting(Model& model, const std::string& why) {
  std::map<std::int64_t, std::shared_ptr<Operation>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(model.waiting);
  }
  for (const auto& [number, operation] : waiting)
    if (!why.empty()) futures_.fail(operation->request(), Error(ErrorCode::cancelled, why));
  model.early.clear();
}

// A number that was refused before we could see it would hold up its model for ever.
void TrainingService::check_gaps(const std::string& session) {
  constexpr double kLongestGap = 120;
  std::vector<std::shared_ptr<Model>> held;
  {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;  // a heartbeat waits for nobody; the next one looks
    for (const auto& [id, model] : models_) {
      if (model->record.session != session || model->waiting.empty() || unix_now() - model->gap_since < kLongestGap) continue;
      log_warning("an operation never came; its model goes on without it", {{"model", id}, {"seq_id", model->next}});
      model->next = model->waiting.begin()->first;
      held.push_back(model);
    }
  }
  for (const auto& model : held) run_ready(model);
}

std::string TrainingService::refuse(const std::string& owner, const std::string& model, std::int64_t sequence, const Error& error) {
  return submit(owner, model, sequence, [error](Model&, const std::string&) -> bool { throw error; });
}

}  // namespace lockstep
