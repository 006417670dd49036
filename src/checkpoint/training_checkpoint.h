// Training checkpoints: one folder each, checkpoints/step-000123/, with state.safetensors (masters and moments by file
// name, fp32) and state.json (step, profile, config, the caller's position, SHA-256 of the former), and beside them the
// file `latest`, which names the one to go on from. A kill or a full disk at any moment leaves the previous one valid.
// Knows nothing of trainers. One writer at a time (run_directory.h has the lock).
//   save_checkpoint(run.checkpoints(), manifest, checkpoint, {.keep_last = 3});
//   if (auto loaded = load_latest_checkpoint(run.checkpoints(), manifest)) trainer.restore(...);
// Kill points (base/file.h), each passed once a checkpoint: checkpoint:write (half of the state is written),
// checkpoint:fsync (all of it, nothing on disk for sure), checkpoint:rename (in place, `latest` still names the one
// before).
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/config_reader.h"
#include "model/weights.h"

namespace lockstep {

struct TrainingCheckpoint {
  std::int64_t step = 0;
  WeightImages masters;                        // packed, every parameter
  WeightImages first_moments, second_moments;  // an empty image: the parameter has none (in both or in neither)
  std::string profile_digest, config_hash;
  Json position = Json::object();  // of data and random numbers: the caller's, an object
};

struct CheckpointOptions {
  int keep_last = 3;  // 0: all
};

// Writes the checkpoint of its step (one that stood there is exchanged), then `latest`, then removes older ones beyond
// keep_last and those of later steps (a future that was abandoned). Returns its folder. Errors: io.
std::filesystem::path save_checkpoint(const std::filesystem::path& checkpoints, const Manifest& manifest,
                                      const TrainingCheckpoint& checkpoint, const CheckpointOptions& options = {});

// One folder, its hash verified. Errors: not_found, io, corrupt_file.
TrainingCheckpoint load_checkpoint(const std::filesystem::path& folder, const Manifest& manifest);

struct LoadedCheckpoint {
  TrainingCheckpoint checkpoint;
  std::filesystem::path folder;
  std::vector<std::string> notes;  // what was passed over because it is corrupt (also logged as warnings)
};
// The one that `latest` names; where that is missing or corrupt, the newest that is valid. Nothing: no checkpoint yet.
// Errors: corrupt_file when there are some and none is valid.
std::optional<LoadedCheckpoint> load_latest_checkpoint(const std::filesystem::path& checkpoints,
                                                       const Manifest& manifest);

// The steps for which a folder stands (valid or not), ascending.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& checkpoints);
// "step-000123".
std::string checkpoint_name(std::int64_t step);

}  // namespace lockstep
