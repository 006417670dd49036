// Records of the control plane: deployments, trainer jobs, promoted models. Names are full resource names. Plain values.
//   Deployment record{.owner = "ann", .name = "accounts/local/deployments/d"}; const TrainingJson stored = to_json(record);
#pragma once
#include "host/training_records.h"

namespace lockstep {

// An entry of a deployment's history of hot loads.
struct HotLoad {
  std::string identity, type;  // type: CheckpointRecord's; empty: unknown
  double began = 0, ended = 0;
  std::string failure;  // empty: it was loaded
};

// A name under which the snapshots of a model are sampled, one after another (hot load).
struct Deployment {
  std::string owner, name;
  double created = 0;
  std::string base_model, trainer_job, shape, transition_type, description;
  std::int64_t min_replicas = 0, max_replicas = 0;
  std::string identity;              // the client's name of the snapshot that is served; empty: the base
  std::string checkpoint;            // its path
  std::string failed, failure;       // the last identity that could not be loaded, and why
  bool guesses = true;               // false: no speculative decoding (docs/speculation.md)
  std::vector<HotLoad> ledger = {};  // the oldest first
  static constexpr std::size_t kMostHotLoads = 100;
};

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

TrainingJson to_json(const Deployment& record);
TrainingJson to_json(const TrainerJob& record);
TrainingJson to_json(const PromotedModel& record);
void from_json(const TrainingJson& json, Deployment& record);
void from_json(const TrainingJson& json, TrainerJob& record);
void from_json(const TrainingJson& json, PromotedModel& record);

}  // namespace lockstep
