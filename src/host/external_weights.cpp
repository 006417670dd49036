// Weights as other programs keep them: PEFT's folder of an adapter, a Hugging Face folder of all parameters; and adapters that the server
// has by name, as if they were checkpoints.
#include "base/entropy.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "checkpoint/adapter_folder.h"
#include "checkpoint/model_folder.h"
#include "host/training_service.h"

namespace lockstep {
namespace {
// "tinker://adapters/external_weights/NAME": an adapter of `lockstep serve --adapter NAME=DIR`.
constexpr std::string_view kNamedAdapters = "tinker://adapters/external_weights/";
constexpr const char* kNamedModel = "adapters";
}  // namespace

std::optional<CheckpointRecord> TrainingService::named_adapter(const std::string& path) const {
  if (!path.starts_with(kNamedAdapters)) return std::nullopt;
  const std::optional<NamedAdapter> adapter = generation_->adapters().find(path.substr(kNamedAdapters.size()));
  if (!adapter) return std::nullopt;
  CheckpointRecord record;
  record.model = kNamedModel;
  record.kind = "external_weights";
  record.name = adapter->name;
  record.created = adapter->loaded;
  record.is_public = true;
  const AdapterSettings& settings = adapter->weights->layout->settings();
  record.settings.base_model = base_->name;
  record.settings.rank = settings.rank;
  record.settings.alpha = settings.alpha;
  record.settings.train_attn = settings.attention;
  record.settings.train_mlp = settings.mlp;
  record.settings.train_unembed = settings.unembedding;
  return record;
}

void TrainingService::write_external(const CheckpointRecord& record, const WeightImages& masters) {
  const std::filesystem::path folder = checkpoint_folder(record);
  if (record.settings.rank > 0) return save_adapter_folder(folder, *adapter_layout(*base_, record.settings), masters, record.settings.base_model, true);
  save_model_folder(folder, *base_->opened.loaded.model, masters, folder_options(base_->opened.runtime->profile.bf16_weights ? DType::bf16 : DType::f32));
}

TrainingCheckpoint TrainingService::read_checkpoint(const CheckpointRecord& from, const Manifest& manifest) {
  const std::filesystem::path folder = checkpoint_folder(from);
  if (from.kind != "external_weights") {
    if (from.merged())
      fail(ErrorCode::invalid_argument, "the checkpoint {} holds weights that an adapter was merged into, to be sampled and promoted; allowed are states and adapters", from.path());
    std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(folder, manifest);
    if (!loaded) fail(ErrorCode::corrupt_file, "the checkpoint {} is not on disk any more", from.path());
    return std::move(loaded->checkpoint);
  }
  TrainingCheckpoint out;
  Runtime& runtime = *base_->opened.runtime;
  if (from.model == kNamedModel) {
    const std::optional<NamedAdapter> adapter = generation_->adapters().find(from.name);
    if (!adapter) fail(ErrorCode::not_found, "there is no adapter '{}' any more", from.name);
    for (const Buffer& buffer : adapter->weights->parameters) out.masters.push_back(runtime.backend.stream().read(buffer.view()).get());
  } else if (from.settings.rank > 0) {
    out.masters = load_adapter_folder(folder, base_->opened.loaded.model->manifest()).images;
  } else {
    out.masters = load_model_folder(folder).masters;
  }
  if (out.masters.size() != manifest.parameters().size())
    fail(ErrorCode::corrupt_file, "the checkpoint {} has {} parameters, allowed are {}", from.path(), out.masters.size(), manifest.parameters().size());
  out.first_moments.resize(out.masters.size());
  out.second_moments.resize(out.masters.size());
  out.profile_digest = from.profile.empty() ? runtime.profile.digest() : from.profile;
  return out;
}

SamplerWeights TrainingService::weights_at(const CheckpointRecord& from) {
  check_profile_of(from);
  Runtime& runtime = *base_->opened.runtime;
  if (from.merged())
    return {make_weight_set(runtime.backend, base_->opened.loaded.model->manifest(), load_model_folder(checkpoint_folder(from) / kMergedFolder).masters, runtime.profile, 0)};
  if (from.kind != "external_weights") return read_weights(checkpoint_folder(from), from.settings);
  if (from.model == kNamedModel) {
    const std::optional<NamedAdapter> adapter = generation_->adapters().find(from.name);
    if (!adapter) fail(ErrorCode::not_found, "there is no adapter '{}' any more", from.name);
    return {base_->weights, adapter->weights};
  }
  const auto layout = from.settings.rank > 0 ? adapter_layout(*base_, from.settings) : nullptr;
  const Manifest& manifest = layout ? layout->manifest() : base_->opened.loaded.model->manifest();
  const TrainingCheckpoint checkpoint = read_checkpoint(from, manifest);
  const auto version = static_cast<std::uint64_t>(from.steps);
  if (layout) return {base_->weights, make_adapter(runtime.backend, layout, checkpoint.masters, version)};
  return {make_weight_set(runtime.backend, manifest, checkpoint.masters, runtime.profile, version)};
}

std::filesystem::path TrainingService::external_folder(const std::string& owner, const std::string& path) {
  const CheckpointRecord record = checkpoint_at(owner, path);
  if (record.kind != "external_weights" || record.model == kNamedModel) fail(ErrorCode::invalid_argument, "the checkpoint {} is none of save_weights_external", record.path());
  return checkpoint_folder(record);
}

std::string TrainingService::copy_checkpoint(const std::string& owner, const CopyRequest& wanted) {
  check_ttl(wanted.ttl_seconds);
  const CheckpointRecord from = checkpoint_at(owner, wanted.source);
  const std::string copy_scope = owner + " " + wanted.idempotency_key;
  if (from.model == kNamedModel) fail(ErrorCode::invalid_argument, "{} is an adapter of the server, and can be named by all; allowed are checkpoints", from.path());
  CheckpointRecord record = from;
  record.owner = owner;
  record.created = unix_now();
  record.expires = wanted.ttl_seconds ? std::optional(record.created + *wanted.ttl_seconds) : std::nullopt;
  record.is_public = false;
  check_short_text("destination_project_id", wanted.project);
  record.project = wanted.project;
  if (!wanted.session.empty()) {
    sessions_.find(owner, wanted.session);
    record.model = fmt::format("{}:train:{}", wanted.session, wanted.number);
  }
  {
    const std::lock_guard lock(mutex_);
    if (const std::string* same = wanted.idempotency_key.empty() ? nullptr : copies_.find(owner, copy_scope, 0)) return *same;
    if (wanted.session.empty()) record.model = "copy-" + hex64(random_bits());
    if (checkpoints_.contains(record.path())) fail(ErrorCode::already_exists, "the checkpoint {} exists already", record.path());
  }
  check_checkpoint_room(owner, record.path(), from.bytes, record.user_metadata.bytes() + record.settings.user_metadata.bytes());
  const std::filesystem::path to = checkpoint_folder(record), source = checkpoint_folder(from);
  std::error_code error;
  std::filesystem::create_directories(to.parent_path(), error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", to.parent_path().string(), error.message());
  AtomicFolder folder(to, AtomicFolder::Existing::replace);  // links: a file of a checkpoint is never written again
  std::filesystem::copy(source, folder.partial(), std::filesystem::copy_options::recursive | std::filesystem::copy_options::create_hard_links, error);
  if (error) fail(ErrorCode::io, "the checkpoint {} cannot be copied: {}", from.path(), error.message());
  folder.commit();
  const std::lock_guard lock(mutex_);
  store_->put("checkpoint", record.path(), to_json(record).dump());
  checkpoints_[record.path()] = record;
  if (!wanted.idempotency_key.empty()) copies_.put(owner, copy_scope, 0, record.path());
  return record.path();
}

}  // namespace lockstep
