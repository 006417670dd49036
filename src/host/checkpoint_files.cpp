#include "host/checkpoint_files.h"

#include "base/error.h"
#include "checkpoint/adapter_folder.h"
#include "checkpoint/model_reader.h"
#include "checkpoint/model_source.h"
#include "host/model_state.h"
#include "model/adapter_merge.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

constexpr const char* kMergedFolder = "model";  // of a merged_base checkpoint, below its folder

// What stands in a folder, or a file's own.
std::int64_t bytes_of_files(const fs::directory_entry& entry) {
  std::error_code error;
  if (!entry.is_directory(error)) return static_cast<std::int64_t>(entry.file_size(error));
  std::int64_t bytes = 0;
  for (const auto& inner : fs::recursive_directory_iterator(entry.path(), error))
    if (inner.is_regular_file(error)) bytes += static_cast<std::int64_t>(inner.file_size(error));
  return bytes;
}
}  // namespace

void CheckpointFiles::check_profile_of(const CheckpointRecord& record) const {
  if (!record.profile.empty()) check_profile(record.profile, fmt::format("the checkpoint {}", record.path()), commons_.runtime().profile);
}

NamedAdapter CheckpointFiles::adapter_named(const std::string& name) const {
  const std::optional<NamedAdapter> adapter = commons_.generation->adapters().find(name);
  if (!adapter) fail(ErrorCode::not_found, "there is no adapter '{}' any more", name);
  return *adapter;
}

TrainingCheckpoint CheckpointFiles::read_own(const CheckpointRecord& from, const Manifest& manifest) const {
  if (from.merged())
    fail(ErrorCode::invalid_argument,
         "the checkpoint {} holds weights that an adapter was merged into, to be sampled and promoted; allowed are states and adapters", from.path());
  if (!from.snapshot.empty()) {
    TrainingCheckpoint values{.step = from.steps, .masters = snapshots_.read(from, manifest), .profile_digest = from.profile};
    values.first_moments.resize(values.masters.size());
    values.second_moments.resize(values.masters.size());
    return values;
  }
  std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(checkpoints_.folder(from), manifest);
  if (!loaded) fail(ErrorCode::corrupt_file, "the checkpoint {} is not on disk any more", from.path());
  return std::move(loaded->checkpoint);
}

TrainingCheckpoint CheckpointFiles::read(const OnExecutor& on, const CheckpointRecord& from, const Manifest& manifest) const {
  if (from.kind != "external_weights") return read_own(from, manifest);
  const fs::path folder = checkpoints_.folder(from);
  TrainingCheckpoint out;
  Runtime& runtime = commons_.runtime();
  if (from.model == kNamedAdapterModel) {
    const NamedAdapter adapter = adapter_named(from.name);
    for (const Buffer& buffer : adapter.weights->parameters) out.masters.push_back(runtime.backend.stream().read(buffer.view()).get());
  } else if (from.settings.rank > 0) {
    out.masters = load_adapter_folder(folder, commons_.base_of(on, from.settings).opened.model->manifest()).images;
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

SamplerWeights CheckpointFiles::read_weights(const OnExecutor&, const fs::path& folder, const ModelSettings& settings) const {
  Runtime& runtime = commons_.runtime();
  const auto layout = settings.rank > 0 ? adapter_layout(*commons_.base, settings) : nullptr;
  const Manifest& manifest = layout ? layout->manifest() : commons_.base_manifest();
  std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(folder, manifest);
  if (!loaded) fail(ErrorCode::corrupt_file, "the weights in {} are not there any more", folder.string());
  check_profile(loaded->checkpoint.profile_digest, "the checkpoint", runtime.profile);
  const auto version = static_cast<std::uint64_t>(loaded->checkpoint.step);
  if (layout) return {commons_.base->weights, make_adapter(runtime.backend, layout, loaded->checkpoint.masters, version)};
  return {make_weight_set(runtime.backend, manifest, loaded->checkpoint.masters, runtime.profile, version)};
}

SamplerWeights CheckpointFiles::weights(const OnExecutor& on, const CheckpointRecord& from) const {
  check_profile_of(from);
  commons_.refuse_critic(from.settings.base_model, kNothingToSample);
  Runtime& runtime = commons_.runtime();
  const TrainingBase& base = *commons_.base;
  if (from.merged()) return {ModelReader::open(checkpoints_.folder(from) / kMergedFolder)->weight_set(runtime.backend, runtime.profile, 0)};
  if (from.kind != "external_weights" && from.snapshot.empty()) return read_weights(on, checkpoints_.folder(from), from.settings);
  if (from.model == kNamedAdapterModel) return {base.weights, adapter_named(from.name).weights};
  const auto layout = from.settings.rank > 0 ? adapter_layout(base, from.settings) : nullptr;
  const Manifest& manifest = layout ? layout->manifest() : commons_.base_manifest();
  const TrainingCheckpoint checkpoint = read(on, from, manifest);
  const auto version = static_cast<std::uint64_t>(from.steps);
  if (layout) return {base.weights, make_adapter(runtime.backend, layout, checkpoint.masters, version)};
  return {make_weight_set(runtime.backend, manifest, checkpoint.masters, runtime.profile, version)};
}

// --- writing

void CheckpointFiles::check_merge(const ModelSettings& settings, const std::string& precision) const {
  if (settings.rank == 0) fail(ErrorCode::invalid_argument, "checkpoint_type is 'merged_base' and the model has no adapter; allowed are base and delta");
  if (precision != "source" && precision != "bf16" && !precision.empty())
    fail(ErrorCode::unsupported, "export_precision is '{}', allowed are source ({} here) and bf16", precision, dtype_name(commons_.base->opened.file_dtype()));
}

SaveOptions CheckpointFiles::folder_options(DType dtype) const {
  SaveOptions options{.dtype = dtype, .overwrite = true, .mtp_from = commons_.base->opened.reader};
  const std::string& base_folder = commons_.base->folder;
  if (open_folder_files(base_folder)->has("tokenizer.json")) options.tokenizer_files_from = base_folder;
  return options;
}

void CheckpointFiles::write_external(const OnExecutor& on, const CheckpointRecord& record, const WeightImages& masters) const {
  const fs::path folder = checkpoints_.folder(record);
  const TrainingBase& base = commons_.base_of(on, record.settings);
  if (record.settings.rank > 0) return save_adapter_folder(folder, *adapter_layout(base, record.settings), masters, record.settings.base_model, true);
  save_model_folder(folder, *base.opened.model, masters, folder_options(commons_.runtime().profile.bf16_files_keep_bits() ? DType::bf16 : DType::f32));
}

void CheckpointFiles::write_merged(const CheckpointRecord& record, const WeightImages& adapter, const std::string& precision) const {
  const OpenedModel& opened = commons_.base->opened;
  const WeightImages merged = merged_weights(opened.model->manifest(), opened.masters(), *adapter_layout(*commons_.base, record.settings), adapter);
  save_model_folder(checkpoints_.folder(record) / kMergedFolder, *opened.model, merged,
                    folder_options(precision == "bf16" ? DType::bf16 : opened.file_dtype()));
}

std::vector<fs::path> CheckpointFiles::write(const OnExecutor& on, CheckpointRecord& record, TrainedModel& trained, const std::string& precision) const {
  const bool external = record.kind == "external_weights", merged = record.merged();
  const fs::path folder = checkpoints_.folder(record);
  std::error_code error;
  fs::create_directories(external ? folder.parent_path() : folder, error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder.string(), error.message());
  if (external) {
    write_external(on, record, trained.master_images());
  } else if (merged) {
    write_merged(record, trained.master_images(), precision);
    record.settings.rank = 0;
  } else {
    write_trained_model(on, folder, trained, record.profile, record.optimizer);
  }
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (!external && (entry.path().filename() == kMergedFolder) != merged) others.push_back(entry.path());
    else record.bytes += bytes_of_files(entry);
  return others;
}

std::string CheckpointFiles::write_for_others(const CheckpointRecord& record, const fs::path& folder) const {
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder.parent_path().string(), error.message());
  const TrainingBase& base = *commons_.base;
  const MemoryLedger::Claim room = memory_.writing(record.settings, fmt::format("writing {} for other programs", record.path()));
  if (record.merged()) {
    const LoadedModel merged = load_model_folder(checkpoints_.folder(record) / kMergedFolder);
    save_model_folder(folder, *base.opened.model, merged.masters, folder_options(merged.file_dtype));
    return record.profile;
  }
  const auto layout = record.settings.rank > 0 ? adapter_layout(base, record.settings) : nullptr;
  const TrainingCheckpoint checkpoint = read_own(record, layout ? layout->manifest() : commons_.base_manifest());
  if (layout) save_adapter_folder(folder, *layout, checkpoint.masters, base.folder, /*overwrite=*/true);
  else save_model_folder(folder, *base.opened.model, checkpoint.masters, folder_options(DType::f32));
  return checkpoint.profile_digest;
}

}  // namespace lockstep
