#include "runs/rl_stack.h"

#include "base/error.h"
#include "checkpoint/model_export.h"

namespace lockstep {

RlStack::RlStack(const RlStackSettings& settings) : model_folder_(settings.runtime.model), executor_(std::make_shared<Executor>()) {
  const Profile& profile = profile_by_name(settings.runtime.profile);
  const Profile& rollouts = settings.rollout_profile.empty() ? profile : profile_by_name(settings.rollout_profile);
  check_trainable(profile);
  check_profile_mix(profile, rollouts, settings.profile_mix);
  opened_ = open_model(settings.runtime);
  if (!opened_.tokenizer) fail(ErrorCode::unsupported, "'{}' has no tokenizer.json, and an environment speaks text", settings.runtime.model);
  rollout_runtime_ = opened_.runtime;
  if (rollouts.digest() != profile.digest()) {
    RuntimeSettings other = settings.runtime;
    other.profile = rollouts.name;
    other.ranks.clear();
    rollout_runtime_ = open_model(other).runtime;
  }

  trainer_ = std::make_unique<LocalTrainer>(
      opened_.runtime, opened_.loaded.masters,
      TrainerOptions{.micro_batch = settings.micro_batch,
                     .checkpoint_activations = settings.checkpoint_activations,
                     .share_prefixes = settings.share_prompts != SharePrompts::off,
                     .declared_prefixes = settings.share_prompts == SharePrompts::backward,
                     .optimizer_folder = settings.optimizer_folder,
                     .ranks = opened_.ranks},
      executor_);
  opened_.loaded.masters.clear();  // the trainer's from here on
  const auto service_on = [&](const std::shared_ptr<Runtime>& runtime) {
    ServingOptions options;
    options.engine = settings.engine;
    options.priority = WorkPriority::rollouts;
    auto service = std::make_shared<GenerationService>(
        ServingModel{opened_.name, runtime, trainer_->weights_for(runtime), opened_.tokenizer, executor_}, options);
    trainer_->follow(service, runtime, settings.profile_mix);
    return service;
  };
  evaluation_service_ = service_on(opened_.runtime);
  rollout_service_ = rollout_runtime_ == opened_.runtime ? evaluation_service_ : service_on(rollout_runtime_);
  evaluation_sampler_ = std::make_unique<LocalSampler>(evaluation_service_, settings.stop);
  rollout_sampler_ = std::make_unique<LocalSampler>(rollout_service_, settings.stop);
}

RlStack::~RlStack() {
  rollout_service_->stop();
  evaluation_service_->stop();
}

std::string RlStack::weights_sha256() {
  return trainer_->with_trainer([&](Trainer& trainer) { return lockstep::weights_sha256(model().manifest(), trainer.master_images()); });
}

void RlStack::export_model(const std::filesystem::path& folder, DType dtype) {
  SaveOptions options;
  options.dtype = dtype;
  options.tokenizer_files_from = model_folder_;
  const WeightImages masters = trainer_->with_trainer([](Trainer& trainer) { return trainer.master_images(); });
  export_model_folder(folder, model(), masters, options, Overwrite::yes);  // in a run's folder: what somebody put beside the model stays
}

}  // namespace lockstep
