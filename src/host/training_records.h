// Records of a training server: sessions, models, samplers, checkpoints, and their JSON in the store. Plain values.
//   const TrainingJson stored = to_json(ModelRecord{.id = "s1:train:0"}); const ModelRecord record = model_record(stored);
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "host/client_json.h"
#include "trained/trained_settings.h"

namespace lockstep {

using TrainingJson = nlohmann::ordered_json;

// The name of the only account.
inline constexpr const char* kTrainingAccount = "local";

struct SessionRecord {
  std::string id, owner, project, display_name, status = "active", finish_detail;
  double created = 0, seen = 0;  // Unix seconds
  ClientJson tags{TrainingJson::array()}, user_metadata;
  std::string idempotency_key;
  std::string job;  // its trainer job; empty: none
};

// Settings of a model, fixed at its creation.
struct ModelSettings : TrainedSettings {
  std::string base_model;
  ClientJson user_metadata;
};

struct ModelRecord {
  std::string id, session, owner;
  std::int64_t number = 0;  // in its session
  ModelSettings settings;
  double created = 0, used = 0;
  std::int64_t next_sequence = 1;  // the number after those done
  std::int64_t steps = 0;          // optimizer steps done
  bool open_gradients = false;     // gradients that no step has used
  bool changed = false;            // since its state was written to disk
  bool declares = false;           // its weights were trained with declared prefixes: another training digest (Profile::training_digest)
};

struct CheckpointRecord {
  std::string model, owner, kind, name;  // kind: weights, sampler_weights, external_weights
  ModelSettings settings;
  double created = 0;
  std::optional<double> expires;
  std::int64_t bytes = 0, steps = 0;
  bool optimizer = false, is_public = false;
  ClientJson user_metadata;
  std::string session;  // of the model
  // The type of a sampler's checkpoint that the client asked for: base, delta, merged_base; empty: none given. All hold whole weights; merged_base as a
  // Hugging Face folder, the others in our own files, or as a snapshot.
  std::string type;
  std::string profile;  // digest of its numerics profile; empty: written by a version that did not store it
  std::string job;      // of the session, after the session was removed
  std::string project;  // of a copy in a run of its own
  // Of a sampler's checkpoint of a server that publishes: it has no files here, it is this snapshot of the server's store, which this channel holds.
  std::string snapshot, channel;
  // Which files of its folder are valid: an overwritten one may have those of both types.
  bool merged() const { return type == "merged_base"; }
  std::string id() const { return kind + "/" + name; }
  std::string path() const { return "tinker://" + model + "/" + id(); }
  // The run of a serverless model: "run-<32 hex>"; empty for others.
  std::string run() const { return model.starts_with("run-") ? model.substr(0, model.find(':')) : std::string(); }
  // Its name for Fireworks' client: ACCOUNT/RUN/NAME for a serverless model, else NAME.
  std::string reference() const;
};

struct SamplerRecord {
  ModelSettings settings;  // of the model it is a snapshot of; without its user_metadata
  std::string id, session, owner, base_model, model_path;
  std::string inflight_model;                               // not empty: it follows that model's inflight saves
  bool spilled = false;                                     // its weights are on disk
  bool snapshot = false;                                    // it has weights that no checkpoint holds
  bool is_snapshot() const { return snapshot || spilled; }  // earlier versions stored only `spilled`
};

TrainingJson to_json(const ModelSettings& settings);
TrainingJson to_json(const SessionRecord& record);
TrainingJson to_json(const ModelRecord& record);
TrainingJson to_json(const CheckpointRecord& record);
TrainingJson to_json(const SamplerRecord& record);
ModelSettings model_settings_of(const TrainingJson& json);
SessionRecord session_record(const TrainingJson& json);
ModelRecord model_record(const TrainingJson& json);
CheckpointRecord checkpoint_record(const TrainingJson& json);
SamplerRecord sampler_record(const TrainingJson& json);

// Error invalid_argument: less than an hour, more than ten years.
void check_ttl(const std::optional<double>& seconds);

// Error invalid_argument: a name or a remark of more than 4096 bytes.
void check_short_text(const std::string& field, const std::string& text);

double unix_now();

// The id of a model or a sampler as the name of a folder.
std::string folder_of_id(const std::string& id);
std::string iso_time(double unix_seconds);  // "2026-11-22T06:00:00.123Z"

}  // namespace lockstep
