// The resources around a trainer that a client of a hosted service makes: trainer jobs, deployments whose snapshots change while they
// are sampled, promoted models. All of them are records; what they stand for is the training service's. Any thread.
//   ControlPlane control(service, store, state, 50); control.hot_load(owner, "accounts/local/deployments/d", "step-3", base_model);
//   request.weights = control.weights(owner, "accounts/local/deployments/d").weights;
#pragma once
#include "host/control_records.h"
#include "host/kept_records.h"
#include "host/weight_cache.h"

namespace lockstep {

class TrainingService;

class ControlPlane {
 public:
  // `state`: the folder that promoted models stand in. `key_share`: percent of each kind's records that one owner may have. `service`
  // outlives it.
  ControlPlane(TrainingService& service, const std::shared_ptr<TrainingStore>& store, std::filesystem::path state, std::int64_t key_share)
      : deployments(store, "deployment", KeyLimit(kMostRecords, key_share)),
        jobs(store, "job", KeyLimit(kMostRecords, key_share)),
        models(store, "promoted", KeyLimit(kMostRecords, key_share)),
        service_(service),
        state_(std::move(state)) {}

  KeptRecords<Deployment> deployments;
  KeptRecords<TrainerJob> jobs;
  KeptRecords<PromotedModel> models;

  // The deployment serves a sampler's checkpoint from now on, and after a restart. When it cannot be read the
  // deployment stays as it was and says why. Errors: resource_exhausted.
  Deployment hot_load(const std::string& owner, const std::string& name, const std::string& identity, const std::string& base_model);

  // What a model's name in a completion stands for: the base, a deployment, a promoted model, a checkpoint of a serverless session
  // (accounts/A/trainingSessions/S[/checkpoints/PATH], accounts/A/trainingSamplers/checkpoints/PATH or /BASE). Null weights: the
  // base's. Error not_found.
  SamplerWeights weights(const std::string& owner, const std::string& name);

  // Makes a model of a sampler's checkpoint: accounts/A/models/M. Done when it returns. Errors: not_found; already_exists; resource_exhausted;
  // invalid_argument for a name that is none or a checkpoint that is no sampler's.
  PromotedModel promote(const std::string& owner, const std::string& checkpoint, const std::string& name, const std::string& base_model);
  // Error invalid_argument: its weights were trained under another numerics profile than this server's.
  void check_profile_of(const PromotedModel& model) const;
  // Of the files of all promoted models, and of that owner's.
  std::pair<std::int64_t, std::int64_t> promoted_bytes(const std::string& owner) const;
  void remove_model(const std::string& owner, const std::string& name);  // and its folder; error not_found
  std::filesystem::path folder(const PromotedModel& model) const { return state_ / model.folder; }
  // The PEFT folder that accounts/A/models/M stands for: a promoted adapter, or one that somebody put below adapters/ of the state's
  // folder. Errors: not_found; invalid_argument for whole weights, and for an adapter of another numerics profile.
  std::filesystem::path adapter_folder(const std::string& owner, const std::string& name) const;

  // The job a session was made through; what was made through none belongs to the job "local". Errors not_found.
  TrainerJob job(const std::string& owner, const std::string& name) const;
  // Its models are dropped and their memory is free; checkpoints stay.
  TrainerJob end_job(const std::string& owner, const std::string& name, const std::string& state);

 private:
  static constexpr std::int64_t kMostRecords = 10'000;
  TrainingService& service_;
  const std::filesystem::path state_;
};

}  // namespace lockstep
