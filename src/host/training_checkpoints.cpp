// Checkpoints and samplers of a training service: names, folders, what is in memory and what on disk.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "base/entropy.h"
#include "base/log.h"
#include "host/training_service.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

// What a client's words for a checkpoint say.
struct CheckpointWords {
  std::string name, run, job;  // empty: not said
};
CheckpointWords words_of(const std::string& path) {
  constexpr std::string_view kCrossJob = "cross_job://";
  CheckpointWords words;
  const std::size_t last = path.rfind('/');
  words.name = last == std::string::npos ? path : path.substr(last + 1);
  if (last == std::string::npos) return words;
  if (path.starts_with(kCrossJob)) {
    words.job = path.substr(kCrossJob.size(), last - std::min(last, kCrossJob.size()));
    return words;
  }
  const std::size_t before = last == 0 ? std::string::npos : path.rfind('/', last - 1);
  const std::string owner_of_name = path.substr(before == std::string::npos ? 0 : before + 1, last - (before == std::string::npos ? 0 : before + 1));
  if (owner_of_name.starts_with("run-")) words.run = owner_of_name;
  return words;
}
}  // namespace

std::string TrainingService::folder_of_id(const std::string& id) {
  std::string name = id;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
}

void TrainingService::check_profile_of(const CheckpointRecord& record) const {
  if (!record.profile.empty()) check_profile(record.profile, fmt::format("the checkpoint {}", record.path()), base_->opened.runtime->profile);
}

fs::path TrainingService::living_folder(const ModelRecord& record) const { return options_.state / "living" / folder_of_id(record.id); }
fs::path TrainingService::checkpoint_folder(const CheckpointRecord& record) const { return options_.state / "checkpoints" / folder_of_id(record.model) / record.kind / record.name; }
fs::path TrainingService::sampler_folder(const SamplerRecord& record) const { return options_.state / "samplers" / folder_of_id(record.id); }

CheckpointRecord TrainingService::checkpoint_at(const std::string& owner, const std::string& path, const std::string& model, const std::string& kind) {
  expire_checkpoints();
  if (std::optional<CheckpointRecord> named = named_adapter(path)) return *named;
  const std::lock_guard lock(mutex_);
  std::string wanted = path;
  if (!path.starts_with("tinker://")) {
    const CheckpointWords words = words_of(path);
    const CheckpointRecord* newest = nullptr;
    for (const auto& [key, record] : checkpoints_)
      if (record.owner == owner && record.kind == kind && record.name == words.name && (words.run.empty() || record.run() == words.run) && (words.job.empty() || job_of(record) == words.job) &&
          (!newest || (record.model == model && newest->model != model) || (newest->model != model && record.created > newest->created)))
        newest = &record;
    if (newest) wanted = newest->path();
  }
  const auto found = checkpoints_.find(wanted);
  if (found == checkpoints_.end() || (found->second.owner != owner && !found->second.is_public)) fail(ErrorCode::not_found, "there is no checkpoint '{}'", path);
  return found->second;
}

void TrainingService::check_checkpoint_room(const std::string& owner, const std::string& path, std::int64_t bytes, std::int64_t metadata) {
  const auto [promoted, own_promoted] = control_.promoted_bytes(owner);
  const std::lock_guard lock(mutex_);
  std::int64_t all = promoted, own = own_promoted, count = 0, own_count = 0;
  for (const auto& [key, record] : checkpoints_) {
    if (key == path) continue;
    all += record.bytes, ++count;
    if (record.owner == owner) own += record.bytes, ++own_count;
  }
  check_metadata_room(owner, metadata);
  const char* const remedy = "delete some, or let them expire";
  limit_of(options_.max_checkpoints).check_room(count, own_count, "checkpoints", remedy);
  std::int64_t most = options_.checkpoint_bytes;
  if (most == 0) {
    std::error_code error;
    const fs::space_info disk = fs::space(options_.state, error);
    most = error ? std::numeric_limits<std::int64_t>::max() / 200 : static_cast<std::int64_t>(disk.capacity / 2);
  }
  limit_of(most).check_bytes(all, own, bytes, "checkpoints and promoted models", remedy, "--checkpoint-megabytes, --key-share");
}

CheckpointRecord TrainingService::checkpoint(const std::string& owner, const std::string& path, const std::string& kind) { return checkpoint_at(owner, path, {}, kind); }

std::string TrainingService::job_of(const CheckpointRecord& record) const {
  if (!record.job.empty()) return record.job;
  const std::string job = sessions_.job_of(record.session);
  return job.empty() ? "local" : job;
}

std::vector<CheckpointRecord> TrainingService::checkpoints_of_job(const std::string& owner, const std::string& job) {
  std::vector<CheckpointRecord> all = checkpoints(owner);
  const std::lock_guard lock(mutex_);
  std::erase_if(all, [&](const CheckpointRecord& record) { return job_of(record) != job; });
  return all;
}

std::vector<CheckpointRecord> TrainingService::checkpoints(const std::string& owner, const std::string& model) {
  expire_checkpoints();
  const std::lock_guard lock(mutex_);
  std::vector<CheckpointRecord> out;
  for (const auto& [path, record] : checkpoints_)
    if (record.owner == owner && (model.empty() || record.model == model)) out.push_back(record);
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.created < b.created; });
  return out;
}

void TrainingService::remove_checkpoint(const std::string& owner, const std::string& path) {
  const CheckpointRecord record = checkpoint_at(owner, path);
  if (record.owner != owner) fail(ErrorCode::not_found, "there is no checkpoint '{}'", path);
  const std::lock_guard lock(mutex_);
  store_->remove("checkpoint", record.path());
  checkpoints_.erase(record.path());
  std::error_code error;
  fs::remove_all(checkpoint_folder(record), error);
  if (error) log_warning("a removed checkpoint is still on disk", {{"checkpoint", record.path()}, {"reason", error.message()}});
}

void TrainingService::change_checkpoint(const std::string& owner, const std::string& path, const std::function<void(CheckpointRecord&)>& change) {
  CheckpointRecord record = checkpoint_at(owner, path);
  if (record.owner != owner) fail(ErrorCode::not_found, "there is no checkpoint '{}'", path);
  change(record);
  const std::lock_guard lock(mutex_);
  store_->put("checkpoint", record.path(), to_json(record).dump());
  checkpoints_[record.path()] = record;
}

void TrainingService::expire_checkpoints() {
  std::vector<CheckpointRecord> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [path, record] : checkpoints_)
      if (record.expires && *record.expires < unix_now()) gone.push_back(record);
    for (const CheckpointRecord& record : gone) {
      store_->remove("checkpoint", record.path());
      checkpoints_.erase(record.path());
    }
  }
  for (const CheckpointRecord& record : gone) {
    std::error_code ignored;
    fs::remove_all(checkpoint_folder(record), ignored);
  }
}

// --- samplers

std::string TrainingService::new_sampler(SamplerRecord record, SamplerWeights weights) {
  const std::lock_guard lock(mutex_);
  const KeyLimit limit = limit_of(options_.max_samplers);
  if (const auto all = static_cast<std::int64_t>(samplers_.size()); all >= limit.share()) {  // fewer are not counted one by one
    const auto own = std::count_if(samplers_.begin(), samplers_.end(), [&](const auto& one) { return one.second->record.owner == record.owner; });
    limit.check_room(all, own, "samplers", "those of old sessions go (--session-days)");
  }
  record.id = fmt::format("{}:sample:{}", record.session, hex64(random_bits()));
  const bool own_weights = weights.adapter || (weights.weights && weights.weights != base_->weights);
  record.snapshot = own_weights && record.model_path.empty() && record.inflight_model.empty();
  const auto sampler = std::make_shared<Sampler>();
  sampler->record = record;
  sampler->weights = std::move(weights);
  sampler->used = ++sampler_clock_;
  store_->put("sampler", record.id, to_json(record).dump());
  samplers_[record.id] = sampler;
  return record.id;
}

std::string TrainingService::create_sampler(const std::string& owner, const std::string& session, std::int64_t number, const std::string& base_model, const std::string& path) {
  sessions_.find(owner, session);
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) fail(ErrorCode::cancelled, "the server stops");
    if (const auto same = sampler_by_number_.find({session, number}); same != sampler_by_number_.end()) return same->second;
  }
  SamplerRecord record;
  record.session = session;
  record.owner = owner;
  record.base_model = base_model;
  if (!path.empty()) {
    const CheckpointRecord from = checkpoint_at(owner, path);
    record.model_path = from.path();
    record.settings = from.settings;
    record.settings.user_metadata = {};
    record.base_model = from.settings.base_model;
  } else {
    check_base(base_model);
  }
  const std::string id = new_sampler(record, {});
  const std::lock_guard lock(mutex_);
  return sampler_by_number_.emplace(std::pair(session, number), id).first->second;
}

std::shared_ptr<TrainingService::Sampler> TrainingService::find_sampler(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = samplers_.find(id);
  if (found == samplers_.end() || found->second->record.owner != owner)
    fail(ErrorCode::not_found, "there is no sampler '{}'; snapshots without a name go when they were not sampled for long (--sampler-hours)", id);
  return found->second;
}

SamplerRecord TrainingService::sampler(const std::string& owner, const std::string& id) {
  const std::shared_ptr<Sampler> found = find_sampler(owner, id);
  const std::lock_guard lock(mutex_);
  return found->record;
}

std::vector<SamplerRecord> TrainingService::samplers(const std::string& owner, const std::string& session) {
  const std::lock_guard lock(mutex_);
  std::vector<SamplerRecord> out;
  for (const auto& [id, sampler] : samplers_)
    if (sampler->record.owner == owner && sampler->record.session == session) out.push_back(sampler->record);
  return out;
}

std::int64_t TrainingService::join_sampler(const std::string& owner, const std::string& id) {
  const std::shared_ptr<Sampler> found = find_sampler(owner, id);
  const std::lock_guard lock(mutex_);
  return ++found->joined;
}

SamplerWeights TrainingService::read_weights(const fs::path& folder, const ModelSettings& settings) {
  Runtime& runtime = *base_->opened.runtime;
  const auto layout = settings.rank > 0 ? adapter_layout(*base_, settings) : nullptr;
  const Manifest& manifest = layout ? layout->manifest() : base_->opened.loaded.model->manifest();
  std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(folder, manifest);
  if (!loaded) fail(ErrorCode::corrupt_file, "the weights in {} are not there any more", folder.string());
  check_profile(loaded->checkpoint.profile_digest, "the checkpoint", runtime.profile);
  const auto version = static_cast<std::uint64_t>(loaded->checkpoint.step);
  if (layout) return {base_->weights, make_adapter(runtime.backend, layout, loaded->checkpoint.masters, version)};
  return {make_weight_set(runtime.backend, manifest, loaded->checkpoint.masters, runtime.profile, version)};
}

SamplerWeights TrainingService::weights_of_checkpoint(const std::string& owner, const std::string& path) {
  const CheckpointRecord from = checkpoint_at(owner, path, {}, "sampler_weights");
  const auto read = [&] { return sampled_weights(owner, from.settings, fmt::format("the weights of {}", from.path()), [&] { return weights_at(from); }); };
  if (from.kind == "external_weights") return base_->executor->run(WorkPriority::training, read).get();  // an adapter by name is in memory
  return cache_.get(fmt::format("{} {}", from.path(), from.created), read);
}

SamplerWeights TrainingService::weights_of_sampler(const std::string& owner, const std::string& id) {
  const std::shared_ptr<Sampler> sampler = find_sampler(owner, id);
  SamplerRecord record;
  {
    const std::lock_guard lock(mutex_);
    sampler->used = ++sampler_clock_;
    sampler->used_at = Clock::now();
    record = sampler->record;
    sessions_.hear(owner, record.session);
    if (sampler->weights.weights) return sampler->weights;
    if (!record.inflight_model.empty()) {
      const auto model = models_.find(record.inflight_model);
      if (model == models_.end() || !model->second->inflight.weights) fail(ErrorCode::not_found, "the model of sampler '{}' is not there any more", id);
      return model->second->inflight;
    }
    if (record.snapshot && !record.spilled) fail(ErrorCode::not_found, "the weights of sampler '{}' went down with a server that was killed; what is to outlive that is saved with a name", id);
    if (record.model_path.empty() && !record.spilled) return {base_->weights};
  }
  std::optional<CheckpointRecord> from;
  if (!record.spilled) from = checkpoint_at(owner, record.model_path);
  const SamplerWeights read = base_->executor->run(WorkPriority::rollouts, [&] {
    return sampled_weights(owner, record.settings, fmt::format("the weights of sampler '{}'", id), [&] { return from ? weights_at(*from) : read_weights(sampler_folder(record), record.settings); });
  }).get();
  {
    const std::lock_guard lock(mutex_);
    if (!sampler->weights.weights) sampler->weights = read;  // another may have been faster
  }
  base_->executor->run(WorkPriority::rollouts, [this] { spill_samplers(); }).get();
  return read;
}

// Snapshots in memory that are too many go to disk, those first that were not used for the longest time.
std::int64_t TrainingService::sampler_bytes_held() {
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0;
  for (const auto& [id, sampler] : samplers_)
    if (sampler->weights.weights && sampler->record.inflight_model.empty()) bytes += bytes_of(sampler->weights);
  return bytes;
}

void TrainingService::spill_samplers(std::int64_t most_bytes) {
  struct Held {
    std::uint64_t used = 0;
    std::shared_ptr<Sampler> sampler;
    SamplerWeights weights;
    SamplerRecord record;
  };
  std::vector<Held> held;
  std::int64_t bytes = 0, most = 0;
  {
    const std::lock_guard lock(mutex_);
    most = stopping_ ? 0 : most_bytes;
    for (const auto& [id, sampler] : samplers_)
      if (sampler->weights.weights && sampler->record.inflight_model.empty()) {
        held.push_back({sampler->used, sampler, sampler->weights, sampler->record});
        bytes += bytes_of(sampler->weights);
      }
  }
  std::sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.used < b.used; });
  for (const Held& one : held) {
    if (bytes <= most) return;
    bytes -= bytes_of(one.weights);
    write_sampler(*one.sampler, one.weights, one.record);
  }
}

void TrainingService::spill_sampler(const std::string& id) {
  std::shared_ptr<Sampler> sampler;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = samplers_.find(id); found != samplers_.end()) sampler = found->second;
    if (!sampler || !sampler->weights.weights) return;
  }
  write_sampler(*sampler, sampler->weights, sampler->record);  // the executor alone changes these two
}

// A snapshot that is on disk nowhere is written, a parameter at a time; then its memory goes.
void TrainingService::write_sampler(Sampler& sampler, const SamplerWeights& weights, const SamplerRecord& record) {
  Runtime& runtime = *base_->opened.runtime;
  if (record.model_path.empty() && !record.spilled) {
    const AdapterWeights* adapter = weights.adapter.get();
    const Manifest& manifest = adapter ? adapter->layout->manifest() : base_->opened.loaded.model->manifest();
    const std::vector<Buffer>& parameters = adapter ? adapter->parameters : weights.weights->parameters;
    TrainingCheckpoint rest;
    rest.profile_digest = runtime.profile.digest();
    const fs::path folder = sampler_folder(record);
    fs::create_directories(folder);
    // Weights that a trainer moves are numbers, never packed.
    save_checkpoint(folder, manifest, rest,
                    {[](StatePart part, std::size_t) { return part == StatePart::master; },
                     [&](StatePart, std::size_t i) { return runtime.backend.stream().read(parameters[i].view()).get(); }},
                    {.keep_last = 1});
  }
  const std::lock_guard lock(mutex_);
  sampler.record.spilled = sampler.record.model_path.empty();
  store_->put("sampler", sampler.record.id, to_json(sampler.record).dump());
  sampler.weights = {};
}

}  // namespace lockstep
