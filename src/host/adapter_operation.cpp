// A model takes an adapter's weights from elsewhere: a promoted adapter, a PEFT folder, another model's checkpoint.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/adapter_folder.h"
#include "host/model_operations.h"
#include "host/model_state.h"

namespace lockstep {

void ModelOperations::take_adapter(const OnExecutor& on, HostedModel& model, const AdapterLayout& layout, const WeightImages& images,
                                   const std::string& digest) {
  ModelSettings settings = model.settings();
  const AdapterSettings& taken = layout.settings();
  if (taken.rank != settings.rank)
    fail(ErrorCode::invalid_argument, "the adapter is of rank {}, the model of rank {}; allowed are equal ones", taken.rank, settings.rank);
  const auto check = [](const char* what, bool has, bool wanted) {
    if (has && !wanted) fail(ErrorCode::invalid_argument, "the adapter has matrices of the {}, which the model does not train", what);
  };
  check("attention", taken.attention, settings.train_attn);
  check("mlp", taken.mlp, settings.train_mlp);
  check("unembedding", taken.unembedding, settings.train_unembed);
  settings.alpha = taken.alpha;  // the adapter's scale is part of what it is
  const auto whole = adapter_layout(*commons_.base, settings);
  TrainingCheckpoint begin{.masters = adapter_images(*whole, settings), .profile_digest = commons_.runtime().profile.digest()};
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
  tools_.resting.replace(on, model, settings, [&](TrainedModel& fresh) { restore_model(on, fresh, std::move(begin), commons_.runtime().profile, false); });
  take_up(model, settings, 0, digest);
}

std::string ModelOperations::load_adapter(const std::string& owner, const std::string& id, std::int64_t sequence, const std::string& from,
                                          Encode<ModelRecord> encode) {
  const auto load = [this, owner, from, encode = std::move(encode)](const OnExecutor& on, HostedModel& model, const std::string&) {
    if (model.settings().rank == 0) fail(ErrorCode::invalid_argument, "model '{}' has no adapter; load_adapter is for models with a rank", model.id);
    commons_.refuse_critic(model.settings().base_model, "which takes no adapter from elsewhere; load_state takes a critic's checkpoint");
    if (from.starts_with("gs://"))
      fail(ErrorCode::unsupported,
           "adapter_path is '{}'; this server reads no bucket: a PEFT folder in adapters/NAME of its state's folder is accounts/{}/models/NAME", from,
           kTrainingAccount);
    if (from.starts_with("accounts/")) {
      const LoadedAdapter loaded = load_adapter_folder(to_.control.adapter_folder(owner, from), commons_.base_manifest());
      const std::optional<PromotedModel> promoted = to_.control.models.find(owner, from);
      take_adapter(on, model, *loaded.layout, loaded.images, promoted ? promoted->profile : std::string());
    } else {
      const CheckpointRecord record = to_.checkpoints.find(owner, from, "sampler_weights", model.id);
      commons_.refuse_critic(record.settings.base_model, "whose adapter is no policy's; load_state takes it into another critic");
      if (record.settings.rank == 0) fail(ErrorCode::invalid_argument, "the checkpoint {} is no adapter's", record.path());
      to_.files.check_profile_of(record);
      const auto layout = adapter_layout(*commons_.base, record.settings);
      take_adapter(on, model, *layout, to_.files.read(on, record, layout->manifest()).masters, record.profile);
    }
    return NumberedOperation::Worked{.result = encode(model.record())};
  };
  return to_.lanes.submit(owner, id, sequence, SentOperation("load_adapter").add(from), load, /*heals=*/true);
}

}  // namespace lockstep
