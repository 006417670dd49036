// Training checkpoints, one folder each: checkpoints/step-000123/ with state.safetensors (masters and moments by file
// name, fp32) and state.json (step, profile, config, the caller's position, SHA-256 of the former), and beside them the
// file `latest`, which names the one to resume from.
//   save_checkpoint(run.checkpoints(), manifest, checkpoint, {.keep_last = 3});
//   if (auto loaded = load_latest_checkpoint(run.checkpoints(), manifest)) trainer.restore(...);
// A run over ranks has the state in a file of each rank instead (checkpoint/share_checkpoint.h); load_checkpoint reads either form.
// A kill or a full disk at any moment leaves the previous checkpoint valid. Knows nothing of trainers. One writer at a time (run_directory.h has
// the lock). Kill points (base/file.h), each passed once a checkpoint: checkpoint:write (half of the state is written),
// checkpoint:fsync (all of it, none surely on disk), checkpoint:rename (in place, `latest` still names the previous one).
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/checkpoint_head.h"
#include "model/config_reader.h"
#include "model/state_part.h"
#include "model/weights.h"

namespace lockstep {

struct TrainingCheckpoint {
  std::int64_t step = 0;
  WeightImages masters;                        // packed, every parameter
  WeightImages first_moments, second_moments;  // an empty image: the parameter has none (in both or in neither)
  std::string profile_digest, config_hash;
  Json position = Json::object();  // the caller's position in data and random numbers, an object
};

struct CheckpointOptions {
  int keep_last = 3;  // 0: all
};

// Writes the checkpoint of its step (replacing an existing one), then `latest`, then removes older ones beyond
// keep_last and those of later steps (from before a rollback). Returns its folder. Errors: io.
std::filesystem::path save_checkpoint(const std::filesystem::path& checkpoints, const Manifest& manifest, const TrainingCheckpoint& checkpoint,
                                      const CheckpointOptions& options = {});

// Supplies the images while they are written: each parameter's is requested once, at the first tensor that it is part of, and
// freed after the last one. So a model is written with memory for a few parameters, not for all.
struct StateSource {
  std::function<bool(StatePart, std::size_t)> has;  // false: it has none (an empty image)
  std::function<std::vector<float>(StatePart, std::size_t)> read;
};
// Writes the same files, bit for bit; the images of `checkpoint` are ignored.
std::filesystem::path save_checkpoint(const std::filesystem::path& checkpoints, const Manifest& manifest, const TrainingCheckpoint& checkpoint,
                                      const StateSource& source, const CheckpointOptions& options);
// Peak bytes of images and values in memory while a model of this manifest is written that way.
std::int64_t checkpoint_write_bytes(const Manifest& manifest);

// What follows when the files of a checkpoint stand in folder.partial(): puts it in place as CHECKPOINTS/step-N, then writes `latest`, then removes older ones.
std::filesystem::path publish_checkpoint(AtomicFolder& folder, const std::filesystem::path& checkpoints, std::int64_t step, const CheckpointOptions& options);

// One folder, its hash verified. Errors: not_found, io, corrupt_file.
TrainingCheckpoint load_checkpoint(const std::filesystem::path& folder, const Manifest& manifest);

struct LoadedCheckpoint {
  TrainingCheckpoint checkpoint;
  std::filesystem::path folder;
  std::vector<std::string> notes;  // checkpoints skipped because they are corrupt (also logged as warnings)
};
// The one that `latest` names; if that is missing or corrupt, the newest valid one. Empty: no checkpoint yet.
// Errors: corrupt_file when there are some and none is valid.
std::optional<LoadedCheckpoint> load_latest_checkpoint(const std::filesystem::path& checkpoints, const Manifest& manifest);
// Calls use(folder) of that one; where it throws corrupt_file, not_found or resource_exhausted, this is noted and the next one is tried. False: no checkpoint
// yet. Errors: as above.
bool use_latest_checkpoint(const std::filesystem::path& checkpoints, const std::function<void(const std::filesystem::path&)>& use,
                           std::vector<std::string>& notes);

// The steps that have a folder (valid or not), ascending.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& checkpoints);

}  // namespace lockstep
