// Resources of a hosted service around a trainer: trainer jobs, deployments whose weights are replaced while they are sampled, promoted models. These
// are records; the models and samplers behind them are in the other registries. Any thread.
//   control.hot_load(owner, "accounts/local/deployments/d", "step-3", base_model);
//   request.weights = control.weights(owner, "accounts/local/deployments/d").weights;
#pragma once
#include "host/checkpoint_weights.h"
#include "host/models.h"
#include "host/sessions.h"
#include "host/stored_records.h"
#include "serving/hosted_deployment.h"

namespace lockstep {

class ControlPlane {
 public:
  struct Registries {
    Sessions& sessions;
    Models& models;
    Checkpoints& checkpoints;
    CheckpointFiles& files;
    CheckpointWeights& weights;
    StoredRecords<PromotedModel>& promoted;
    std::function<void(const std::string& owner, const std::string& session)> drop_models;
  };
  ControlPlane(TrainingCommons& commons, Registries registries)
      : deployments(commons.store, "deployment", commons.limit_of(kMostRecords)),
        jobs(commons.store, "job", commons.limit_of(kMostRecords)),
        models(registries.promoted),
        commons_(commons),
        to_(std::move(registries)) {}

  static constexpr std::int64_t kMostRecords = 10'000;  // of each kind
  StoredRecords<Deployment> deployments;
  StoredRecords<TrainerJob> jobs;
  StoredRecords<PromotedModel>& models;

  // Makes the deployment serve a sampler's checkpoint, also after a restart. If it cannot be read, the deployment stays as it is and stores the reason.
  // Error not_found: there is no such deployment, or none any more.
  Deployment hot_load(const std::string& owner, const std::string& name, const std::string& identity, const std::string& base_model);

  // The weights that a model's name in a completion means: the base, a deployment, a promoted model, a checkpoint of a serverless session
  // (accounts/A/trainingSessions/S[/checkpoints/PATH], accounts/A/trainingSamplers/checkpoints/PATH or /BASE). Null weights: the
  // base's. Error not_found.
  SamplerWeights weights(const std::string& owner, const std::string& name);

  // Makes a model accounts/A/models/M of a sampler's checkpoint. Errors: not_found; already_exists; resource_exhausted; invalid_argument for a bad name or
  // another kind of checkpoint.
  PromotedModel promote(const std::string& owner, const std::string& checkpoint, const std::string& name, const std::string& base_model);
  void remove_model(const std::string& owner, const std::string& name);  // and its folder; error not_found
  // The PEFT folder of accounts/A/models/M: a promoted adapter, or one that an operator put below adapters/ of the state's folder. Errors: not_found;
  // invalid_argument for whole weights, and for an adapter of another numerics profile.
  std::filesystem::path adapter_folder(const std::string& owner, const std::string& name) const;

  // A session's job; sessions without one belong to the job "local". Errors not_found.
  TrainerJob job(const std::string& owner, const std::string& name) const;
  // Unloads its models and frees their memory; checkpoints stay.
  TrainerJob end_job(const std::string& owner, const std::string& name, const std::string& state);

 private:
  TrainingCommons& commons_;
  const Registries to_;
};

}  // namespace lockstep
