// Creates and unloads models: new ones, from a checkpoint, or from a promoted model. Both run in the model's lane; the call returns a request id at
// once. Any thread.
//   const std::string request = life.create(owner, {.session = session, .number = 0, .settings = settings}, encode);
#pragma once
#include <string>

#include "host/checkpoint_files.h"
#include "host/model_lanes.h"
#include "host/resting.h"
#include "host/samplers.h"
#include "host/training_requests.h"

namespace lockstep {

class ModelLife {
 public:
  struct Registries {
    Sessions& sessions;
    Models& models;
    ModelLanes& lanes;
    Resting& resting;
    OpenGradients& gradients;
    MemoryRoom& memory;
    Checkpoints& checkpoints;
    CheckpointFiles& files;
    Samplers& samplers;
    const StoredRecords<PromotedModel>& promoted;
  };
  ModelLife(TrainingCommons& commons, const Registries& registries) : commons_(commons), to_(registries) {}

  // Of a serverless session (ts-...) a model is a run: its id is run-<32 hex>:train:N, but for base_only ones.
  static std::string id_of(const CreateModel& wanted);
  // Errors: not_found, invalid_argument, cancelled; others are the request's result.
  std::string create(const std::string& owner, const CreateModel& wanted, const Encode<ModelRecord>& encode);
  // Errors: not_found, cancelled.
  std::string unload(const std::string& owner, const std::string& id, const Encode<ModelRecord>& encode);
  // Unloads it, without a request.
  void drop(const std::string& owner, const std::string& id);
  void drop_of_session(const std::string& owner, const std::string& session);

 private:
  void make(const OnExecutor& on, HostedModel& model, const CreateModel& wanted);

  TrainingCommons& commons_;
  const Registries to_;
};

}  // namespace lockstep
