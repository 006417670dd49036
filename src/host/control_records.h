// Records of the control plane beside deployments (serving/hosted_deployment.h): trainer jobs, promoted models. Names are full resource names. Plain
// values.
//   TrainerJob record{.owner = "ann", .name = "accounts/local/rlorTrainerJobs/j"}; const TrainingJson stored = to_json(record);
#pragma once
#include "host/training_records.h"

namespace lockstep {

// The trainer is this server; a job is a name for a group of sessions, with a state.
struct TrainerJob {
  std::string owner, name;
  double created = 0, updated = 0;
  std::string state = "JOB_STATE_RUNNING";  // or _CANCELLED, _DELETED
  std::string base_model, display_name, shape;
  std::int64_t rank = 0, max_context = 0;  // max_context 0: the server's
  bool forward_only = false;
};

// A sampler's checkpoint as a model of its own: a Hugging Face folder, of an adapter a PEFT folder, which outlives the checkpoint.
struct PromotedModel {
  std::string owner, name;
  double created = 0;
  std::string base_model, checkpoint, folder;  // folder: below the state's
  ModelSettings settings;
  std::string profile = {};  // digest of the numerics profile that its weights were trained under; empty: not known
  std::int64_t bytes = 0;    // of its files; 0: written by a version that did not count them
  bool adapter() const { return settings.rank > 0; }
};

TrainingJson to_json(const TrainerJob& record);
TrainingJson to_json(const PromotedModel& record);
void from_json(const TrainingJson& json, TrainerJob& record);
void from_json(const TrainingJson& json, PromotedModel& record);

}  // namespace lockstep
