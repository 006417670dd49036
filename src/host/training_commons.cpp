#include "host/training_commons.h"

#include "base/error.h"
#include "base/output_path.h"
#include "host/memory_room.h"

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
}  // namespace

TrainingCommons::TrainingCommons(std::shared_ptr<TrainingBase> base_of_all, std::shared_ptr<GenerationService> generation_of_all,
                                 const TrainingServiceOptions& wanted)
    : base(std::move(base_of_all)),
      generation(std::move(generation_of_all)),
      options(wanted),
      lock(locked(options.state)),
      store(std::make_shared<TrainingStore>(options.state)),
      feed(deadlines),
      futures(deadlines, store, most_result_bytes(*base)),
      numbers(limit_of(options.max_numbers)),
      metadata(options.metadata_bytes, limit_of(most_metadata_bytes(*base))),
      queue(std::make_shared<TrainingQueue>(base->executor, options.share_passes ? options.tokens_a_step : 0)) {
  if (options.offload_optimizer) {
    base->options.optimizer_folder = emptied(options.state / "optimizer");
    base->options.release_state = true;
  }
}

void TrainingCommons::check_base(const std::string& name) const {
  const bool critic = base->is_critic(name);
  const std::string plain = critic ? name.substr(0, name.size() - kCriticSuffix.size()) : name;
  if (!base->is_called(plain))
    fail(ErrorCode::not_found, "base_model is '{}', allowed are {}{}{}", name, fmt::join(base->names, ", "),
         critic ? fmt::format(", each with {} behind it for a critic", kCriticSuffix) : "", did_you_mean(plain, base->names));
}

TrainingBase& TrainingCommons::base_of(const OnExecutor& on, const ModelSettings& settings) {
  if (!base->is_critic(settings.base_model)) return *base;
  std::shared_ptr<TrainingBase>& values = values_.at(on);
  if (!values) {
    auto opened = std::make_shared<TrainingBase>(*base);
    opened->opened = base->open_values();
    opened->weights = nullptr;
    opened->ranks = nullptr;
    opened->frozen = nullptr;
    values = std::move(opened);
  }
  return *values;
}

void TrainingCommons::check_kind(const CheckpointRecord& checkpoint, const std::string& base_model) const {
  if (base->is_critic(checkpoint.settings.base_model) != base->is_critic(base_model))
    fail(ErrorCode::invalid_argument, "the checkpoint {} is of base_model '{}', and the model of '{}'; allowed are two critics (NAME{}), or none",
         checkpoint.path(), checkpoint.settings.base_model, base_model, kCriticSuffix);
}

void TrainingCommons::refuse_critic(const std::string& base_model, const std::string& why) const {
  if (base->is_critic(base_model)) fail(ErrorCode::unsupported, "'{}' is a critic, {}", base_model, why);
}

}  // namespace lockstep
