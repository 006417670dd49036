#include "service/training/training_service.h"

#include <algorithm>

#include "base/entropy.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

namespace lockstep {
namespace {
std::unique_ptr<FolderLock> locked(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder.string(), error.message());
  return std::make_unique<FolderLock>(folder);
}

[[noreturn]] void fail_unknown(const char* what, const std::string& id) { fail(ErrorCode::not_found, "there is no {} '{}'", what, id); }
}  // namespace

TrainingService::TrainingService(std::shared_ptr<TrainingBase> base, std::shared_ptr<GenerationService> generation, const TrainingServiceOptions& options)
    : base_(std::move(base)),
      generation_(std::move(generation)),
      options_(options),
      lock_(locked(options.state)),
      futures_(store_ = std::make_shared<TrainingStore>(options.state)),
      queue_(std::make_shared<TrainingQueue>(base_->executor)) {
  base_->kept = std::make_shared<KeptPasses>(options.reuse_bytes);
  load_records();
}

TrainingService::~TrainingService() { stop(); }

void TrainingService::load_records() {
  store_->each("session", [&](const std::string& id, const std::string& document) {
    SessionRecord record = session_record(TrainingJson::parse(document));
    if (!record.idempotency_key.empty()) session_by_key_[{record.owner, record.idempotency_key}] = id;
    sessions_[id] = std::move(record);
  });
  store_->each("checkpoint", [&](const std::string& path, const std::string& document) { checkpoints_[path] = checkpoint_record(TrainingJson::parse(document)); });
  store_->each("model", [&](const std::string& id, const std::string& document) {
    const auto model = std::make_shared<Model>();
    model->record = model_record(TrainingJson::parse(document));
    model->next = model->record.next_sequence;
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
  if (!models_.empty()) log_info("training state read", {{"sessions", sessions_.size()}, {"models", models_.size()}, {"checkpoints", checkpoints_.size()}});
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
  try {
    base_->executor->run(WorkPriority::training, [this] {
      for (const auto& [id, model] : models_) {
        try {
          write_living(*model);
        } catch (const std::exception& e) {
          log_error("a model could not be written down", {{"model", id}, {"reason", e.what()}});
        }
        model->trained.reset();
        model->inflight = {};
      }
      for (const auto& [id, sampler] : samplers_) sampler->used = 0;
      spill_samplers();
      for (const auto& [id, sampler] : samplers_) sampler->weights = {};
    }).get();
  } catch (const std::exception& e) {
    log_error("the training service did not stop cleanly", {{"reason", e.what()}});
  }
}

bool TrainingService::is_base(const std::string& name) const { return std::find(base_->names.begin(), base_->names.end(), name) != base_->names.end(); }

// --- sessions

std::string TrainingService::create_session(const std::string& owner, SessionRecord wanted) {
  const std::lock_guard lock(mutex_);
  if (stopping_) fail(ErrorCode::cancelled, "the server stops");
  if (!wanted.idempotency_key.empty())
    if (const auto same = session_by_key_.find({owner, wanted.idempotency_key}); same != session_by_key_.end()) return same->second;
  if (static_cast<std::int64_t>(sessions_.size()) >= options_.max_sessions) fail(ErrorCode::resource_exhausted, "there are {} sessions, allowed are {}", sessions_.size(), options_.max_sessions);
  const std::string prefix = wanted.id;  // what the id begins with
  wanted.id = prefix + hex64(random_bits());
  wanted.owner = owner;
  wanted.created = wanted.seen = unix_now();
  store_->put("session", wanted.id, to_json(wanted).dump());
  if (!wanted.idempotency_key.empty()) session_by_key_[{owner, wanted.idempotency_key}] = wanted.id;
  const std::string id = wanted.id;
  sessions_[id] = std::move(wanted);
  return id;
}

SessionRecord TrainingService::session(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.owner != owner) fail_unknown("session", id);
  return found->second;
}

std::vector<SessionRecord> TrainingService::sessions(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  std::vector<SessionRecord> out;
  for (const auto& [id, record] : sessions_)
    if (record.owner == owner) out.push_back(record);
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.created > b.created; });
  return out;
}

void TrainingService::heartbeat(const std::string& owner, const std::string& id) {
  session(owner, id);
  {
    const std::lock_guard lock(mutex_);
    sessions_[id].seen = unix_now();
  }
  check_gaps(id);
}

void TrainingService::finish_session(const std::string& owner, const std::string& id, const std::string& status, const std::string& detail) {
  session(owner, id);
  const std::lock_guard lock(mutex_);
  SessionRecord& record = sessions_[id];
  if (record.status != "active") return;  // the first reason stays
  record.status = status;
  record.finish_detail = detail;
  store_->put("session", id, to_json(record).dump());
}

// --- models

std::shared_ptr<TrainingService::Model> TrainingService::find_model(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(id);
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

std::string TrainingService::create_model(const std::string& owner, const CreateModel& wanted, Encode<ModelRecord> encode) {
  session(owner, wanted.session);
  const std::string id = fmt::format("{}:train:{}", wanted.session, wanted.number);
  std::string request;
  std::shared_ptr<Model> model;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) fail(ErrorCode::cancelled, "the server stops");
    if (const auto same = creations_.find({wanted.session, wanted.number}); same != creations_.end()) return same->second;
    request = creations_[{wanted.session, wanted.number}] = futures_.create(owner, id);
    if (!models_.contains(id)) {
      model = models_[id] = std::make_shared<Model>();
      model->record.id = id;
      model->record.session = wanted.session;
      model->record.owner = owner;
      model->record.number = wanted.number;
      model->record.settings = wanted.settings;
      model->record.created = model->record.used = unix_now();
    }
  }
  if (!model) {
    futures_.fail(request, Error(ErrorCode::already_exists, fmt::format("model '{}' exists already", id)));
    return request;
  }
  queue_->submit(id, [this, model, request, owner, wanted, encode = std::move(encode)] {
    try {
      ModelSettings& settings = model->record.settings;
      std::optional<CheckpointRecord> from;
      if (!wanted.from.empty()) {
        from = checkpoint_at(owner, wanted.from);
        const std::string base_model = settings.base_model.empty() ? from->settings.base_model : settings.base_model;
        const TrainingJson metadata = settings.user_metadata;
        settings = from->settings;
        settings.base_model = base_model;
        settings.user_metadata = metadata;
      }
      if (!is_base(settings.base_model))
        fail(ErrorCode::not_found, "base_model is '{}', allowed are {}{}", settings.base_model, fmt::join(base_->names, ", "), did_you_mean(settings.base_model, base_->names));
      if (settings.optimizer != "adamw") fail(ErrorCode::unsupported, "optimizer_config.type is '{}', allowed is adamw", settings.optimizer);
      {
        const std::lock_guard lock(mutex_);
        const auto living = std::count_if(models_.begin(), models_.end(), [](const auto& m) { return m.second->trained != nullptr; });
        if (living >= options_.max_models) fail(ErrorCode::resource_exhausted, "there are {} living models, allowed are {}; unload some", living, options_.max_models);
      }
      if (settings.rank > 0 && !settings.seed) settings.seed = random_seed();
      model->trained = make_trained_model(*base_, settings);
      if (from) {
        std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(checkpoint_folder(*from), model->trained->manifest());
        if (!loaded) fail(ErrorCode::corrupt_file, "the checkpoint {} is not on disk any more", from->path());
        if (wanted.with_optimizer && !from->optimizer) fail(ErrorCode::invalid_argument, "the checkpoint {} has no optimizer state", from->path());
        model->trained->restore(std::move(loaded->checkpoint), wanted.with_optimizer);
      }
      ModelRecord record;
      {
        const std::lock_guard lock(mutex_);
        model->record.steps = model->trained->steps();
        model->record.changed = from.has_value();
        record = model->record;
      }
      keep(record);
      futures_.resolve(request, encode(record));
    } catch (const std::exception& e) {
      {
        const std::lock_guard lock(mutex_);
        model->lost = fmt::format("model '{}' could not be made: {}", model->record.id, e.what());
      }
      futures_.fail(request, e);
    }
    return false;
  });
  return request;
}

std::string TrainingService::unload_model(const std::string& owner, const std::string& id, Encode<ModelRecord> encode) {
  const std::shared_ptr<Model> model = find_model(owner, id);
  const std::string request = futures_.create(owner, id);
  queue_->submit(id, [this, model, request, encode = std::move(encode)] {
    model->trained.reset();
    model->inflight = {};
    const std::lock_guard lock(mutex_);
    model->lost = fmt::format("model '{}' was unloaded", model->record.id);
    models_.erase(model->record.id);
    store_->remove("model", model->record.id);
    std::error_code ignored;
    std::filesystem::remove_all(living_folder(model->record), ignored);
    futures_.resolve(request, encode(model->record));
    return false;
  });
  return request;
}

// --- the order of operations

std::string TrainingService::submit(const std::string& owner, const std::string& id, std::int64_t sequence, Work work, bool heals) {
  const std::shared_ptr<Model> model = find_model(owner, id);
  std::string request;
  {
    const std::lock_guard lock(mutex_);
    if (const auto same = model->requests.find(sequence); same != model->requests.end()) return same->second;
    if (stopping_) fail(ErrorCode::cancelled, "the server stops; try again when it is back");
    if (sequence < 1) fail(ErrorCode::invalid_argument, "seq_id is {}, allowed is 1 and up", sequence);
    if (static_cast<std::int64_t>(model->waiting.size()) >= options_.max_pending)
      fail(ErrorCode::resource_exhausted, "model '{}' has {} operations waiting, allowed are {}", id, model->waiting.size(), options_.max_pending);
    request = model->requests[sequence] = futures_.create(owner, id);
    model->record.used = unix_now();
    TrainingQueue::Step step = [this, model, request, work = std::move(work), heals, sequence] {
      bool again = false;
      try {
        if (!heals && !model->lost.empty()) fail(ErrorCode::io, "{}", model->lost);
        again = work(*model, request);
      } catch (const std::exception& e) {
        futures_.fail(request, e);
      }
      if (again) return true;
      const std::lock_guard lock(mutex_);
      model->record.next_sequence = std::max(model->record.next_sequence, sequence + 1);
      return false;
    };
    if (!model->lost.empty()) {
      model->next = std::max(model->next, sequence + 1);  // numbers before it went down with the server
      queue_->submit(id, std::move(step));
      return request;
    }
    if (sequence < model->next) {
      futures_.fail(request, Error(ErrorCode::io, fmt::format("seq_id {} of model '{}' was used before; its result is not known any more", sequence, id)));
      return request;
    }
    model->waiting[sequence] = {request, std::move(step)};
  }
  run_ready(model);
  return request;
}

void TrainingService::run_ready(const std::shared_ptr<Model>& model) {
  const std::lock_guard lock(mutex_);
  for (auto first = model->waiting.begin(); first != model->waiting.end() && first->first == model->next; first = model->waiting.begin()) {
    queue_->submit(model->record.id, std::move(first->second.step));
    model->waiting.erase(first);
    ++model->next;
  }
  model->gap_since = model->waiting.empty() ? 0 : unix_now();
}

// A number that was refused before we could see it would hold up its model for ever.
void TrainingService::check_gaps(const std::string& session) {
  constexpr double kLongestGap = 120;
  std::vector<std::shared_ptr<Model>> held;
  {
    const std::lock_guard lock(mutex_);
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
