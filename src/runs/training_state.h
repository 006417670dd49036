// A trainer's state in the checkpoints of a run, for every kind of run.
//   trainer.restore(trainer_state(load_checkpoint(newest_checkpoint(run), manifest)));
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/run_directory.h"
#include "checkpoint/training_checkpoint.h"
#include "numerics/profile.h"
#include "train/options.h"

namespace lockstep {

// TrainerOptions::optimizer_folder for the option's value: "memory", or "file": in the folder of runs, which is created. Scratch space that leaves nothing
// behind. Errors: invalid_argument, io.
std::string optimizer_folder(const std::string& optimizer_state, const std::filesystem::path& runs);

// The trainer's state in a checkpoint; a new state with other weights: step 0, moments of zero.
TrainerState trainer_state(TrainingCheckpoint&& checkpoint);
TrainerState fresh_state(TrainerState state, WeightImages masters);
// Writes checkpoints/step-N atomically, of what is trained beside the model, into the run's folder of the name `part`; `position` is the caller's (data,
// random numbers), `digest`: of the profile it was trained under. The model's own: TrainerCheckpoints (runs/trainer_checkpoints.h).
void save_training(const RunDirectory& run, TrainerState state, const Manifest& manifest, const std::string& digest, const Json& position, int keep_last,
                   const std::string& part);
// The head of a checkpoint of a run: its config's hash, the rest is the caller's.
CheckpointHead training_head(const RunDirectory& run, std::int64_t step, const std::string& digest, const Json& position);
// Error invalid_argument when a checkpoint was written under another profile, or with the other choice of declared prefixes.
void check_training_digest(const std::string& digest, const std::filesystem::path& folder, const Profile& profile, bool declared_prefixes);
// --fork: another run's newest checkpoint (its folder; not_found), and the weights in it.
std::string newest_checkpoint(const std::filesystem::path& run);
WeightImages forked_weights(const std::filesystem::path& checkpoint, const Manifest& manifest, const Profile& profile, bool declared_prefixes);

}  // namespace lockstep
