// Adapters and whole weights out of a training service and into it: merged checkpoints, folders for others, promoted models, adapters that
// a model takes.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/adapter_folder.h"
#include "model/adapter_merge.h"
#include "host/training_service.h"

namespace lockstep {
namespace fs = std::filesystem;

void TrainingService::check_merge(const ModelSettings& settings, const std::string& precision) const {
  if (settings.rank == 0) fail(ErrorCode::invalid_argument, "checkpoint_type is 'merged_base' and the model has no adapter; allowed are base and delta");
  if (precision != "source" && precision != "bf16" && !precision.empty())
    fail(ErrorCode::unsupported, "export_precision is '{}', allowed are source ({} here) and bf16", precision, dtype_name(base_->opened.loaded.file_dtype));
}

void TrainingService::write_merged(const ModelSettings& settings, const WeightImages& adapter, const std::string& precision, const fs::path& folder) {
  const LoadedModel& loaded = base_->opened.loaded;
  const WeightImages merged = merged_weights(loaded.model->manifest(), loaded.masters, *adapter_layout(*base_, settings), adapter);
  save_model_folder(folder / kMergedFolder, *loaded.model, merged, folder_options(precision == "bf16" ? DType::bf16 : loaded.file_dtype));
}

SaveOptions TrainingService::folder_options(DType dtype) const {
  SaveOptions options{.dtype = dtype, .overwrite = true};
  if (fs::exists(fs::path(base_->folder) / "tokenizer.json")) options.tokenizer_files_from = base_->folder;
  return options;
}

std::string TrainingService::export_checkpoint(const CheckpointRecord& record, const fs::path& folder) {
  const fs::path from = checkpoint_folder(record);
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (error) fail(ErrorCode::io, "the folder {} cannot be made: {}", folder.parent_path().string(), error.message());
  const LoadedModel& base = base_->opened.loaded;
  const MemoryLedger::Claim room = writing_room(record.settings, fmt::format("writing {} for other programs", record.path()));
  if (record.merged()) {
    const LoadedModel merged = load_model_folder(from / kMergedFolder);
    save_model_folder(folder, *base.model, merged.masters, folder_options(merged.file_dtype));
    return record.profile;
  }
  const auto layout = record.settings.rank > 0 ? adapter_layout(*base_, record.settings) : nullptr;
  const TrainingCheckpoint checkpoint = read_checkpoint(record, layout ? layout->manifest() : base.model->manifest());
  if (layout) save_adapter_folder(folder, *layout, checkpoint.masters, base_->folder, /*overwrite=*/true);
  else save_model_folder(folder, *base.model, checkpoint.masters, folder_options(DType::f32));
  return checkpoint.profile_digest;
}

SamplerWeights TrainingService::weights_of_promoted(const PromotedModel& model) {
  return cache_.get(fmt::format("{} {} {}", model.owner, model.name, model.created), [&]() -> SamplerWeights {
    Runtime& runtime = *base_->opened.runtime;
    const Manifest& manifest = base_->opened.loaded.model->manifest();
    control_.check_profile_of(model);
    return sampled_weights(model.owner, model.settings, fmt::format("the promoted model '{}'", model.name), [&]() -> SamplerWeights {
    if (!model.adapter()) return {make_weight_set(runtime.backend, manifest, load_model_folder(control_.folder(model)).masters, runtime.profile, 0)};
    const LoadedAdapter loaded = load_adapter_folder(control_.folder(model), manifest);
    return {base_->weights, make_adapter(runtime.backend, loaded.layout, loaded.images, 0)};
    });
  });
}

void TrainingService::take_adapter(Model& model, const AdapterLayout& layout, const WeightImages& images) {
  ModelSettings settings = model.record.settings;
  const AdapterSettings& taken = layout.settings();
  if (taken.rank != settings.rank) fail(ErrorCode::invalid_argument, "the adapter is of rank {}, the model of rank {}; allowed are equal ones", taken.rank, settings.rank);
  const auto check = [](const char* what, bool has, bool wanted) {
    if (has && !wanted) fail(ErrorCode::invalid_argument, "the adapter has matrices of the {}, which the model does not train", what);
  };
  check("attention", taken.attention, settings.train_attn);
  check("mlp", taken.mlp, settings.train_mlp);
  check("unembedding", taken.unembedding, settings.train_unembed);
  settings.alpha = taken.alpha;  // the adapter's scale is part of what it is
  const auto whole = adapter_layout(*base_, settings);
  TrainingCheckpoint begin{.masters = adapter_images(*whole, settings), .profile_digest = base_->opened.runtime->profile.digest()};
  std::vector<float> values;
  for (const FileTensor& tensor : layout.manifest().files()) {
    const auto& files = whole->manifest().files();
    const auto place = std::find_if(files.begin(), files.end(), [&](const FileTensor& file) { return file.name == tensor.name; });
    values.resize(static_cast<std::size_t>(tensor.size()));
    layout.manifest().gather(tensor, images, values.data());
    whole->manifest().scatter(*place, values.data(), begin.masters);
  }
  begin.first_moments.resize(begin.masters.size());
  begin.second_moments.resize(begin.masters.size());
  replace_trained(model, settings, [&](TrainedModel& fresh) { fresh.restore(std::move(begin), false); });
  const std::lock_guard lock(mutex_);
  model.lost.clear();
  model.record.settings = settings;
  model.record.steps = 0;
  model.record.open_gradients = false;
  model.record.changed = true;
}

std::string TrainingService::load_adapter(const std::string& owner, const std::string& id, std::int64_t sequence, const std::string& from, Encode<ModelRecord> encode) {
  return submit(
      owner, id, sequence,
      [this, owner, from, encode = std::move(encode)](Model& model, const std::string& request) {
        if (model.record.settings.rank == 0) fail(ErrorCode::invalid_argument, "model '{}' has no adapter; load_adapter is for models with a rank", model.record.id);
        if (from.starts_with("gs://")) fail(ErrorCode::unsupported, "adapter_path is '{}'; this server reads no bucket: a PEFT folder in adapters/NAME of its state's folder is accounts/{}/models/NAME", from, kTrainingAccount);
        if (from.starts_with("accounts/")) {
          const LoadedAdapter loaded = load_adapter_folder(control_.adapter_folder(owner, from), base_->opened.loaded.model->manifest());
          take_adapter(model, *loaded.layout, loaded.images);
        } else {
          const CheckpointRecord record = checkpoint_at(owner, from, model.record.id, "sampler_weights");
          if (record.settings.rank == 0) fail(ErrorCode::invalid_argument, "the checkpoint {} is no adapter's", record.path());
          check_profile_of(record);
          const auto layout = adapter_layout(*base_, record.settings);
          take_adapter(model, *layout, read_checkpoint(record, layout->manifest()).masters);
        }
        ModelRecord record;
        {
          const std::lock_guard lock(mutex_);
          record = model.record;
        }
        keep(record);
        futures_.resolve(request, encode(record));
        return false;
      },
      /*heals=*/true);
}

}  // namespace lockstep
