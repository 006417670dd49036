// Between a trainer and its checkpoints on disk: one place for both kinds of run.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/run_directory.h"
#include "checkpoint/training_checkpoint.h"
#include "numerics/profile.h"
#include "train/trainer.h"

namespace lockstep {

// Where the optimizer's state of a run lies (TrainerOptions::optimizer_folder), by the name that the user gives: "memory", or "file" in
// the folder of runs, which is made. Scratch, not a checkpoint: nothing is left of it. Errors: invalid_argument, io.
std::string optimizer_folder(const std::string& optimizer_state, const std::filesystem::path& runs);
inline constexpr const char* kOptimizerStateHelp =
    "Where AdamW keeps moments and fp32 masters: memory, or a file without a name on the disk of --runs, for models whose state is larger "
    "than memory; changes no bit";

// The state of a trainer that a checkpoint holds, and one that begins anew with other weights: step 0, moments of zero.
TrainerState trainer_state(TrainingCheckpoint&& checkpoint);
TrainerState fresh_state(TrainerState state, WeightImages masters);
// A checkpoint of anything that has such a state; `digest`: of the profile it was trained under.
void save_training(const RunDirectory& run, TrainerState state, const Manifest& manifest, const std::string& digest, const Json& position, int keep_last);
// The newest valid one of a run's folder; none: nothing yet. Errors as restore_training.
std::optional<TrainingCheckpoint> load_training(const std::filesystem::path& run, const Manifest& manifest, const Profile& profile, bool declared_prefixes);
// --fork: another run's newest checkpoint (its folder; not_found), the weights in it, and a trainer that begins with them and an optimizer
// without a past.
std::string newest_checkpoint(const std::filesystem::path& run);
WeightImages forked_weights(const std::filesystem::path& checkpoint, const Manifest& manifest, const Profile& profile, bool declared_prefixes);
void begin_from(const std::filesystem::path& checkpoint, Trainer& trainer, const Manifest& manifest, const Profile& profile);

// Writes checkpoints/step-N atomically; `position` is the caller's (data, random numbers).
void save_training(const RunDirectory& run, Trainer& trainer, const Manifest& manifest, const Profile& profile, const Json& position, int keep_last);

// Restores the newest valid checkpoint and returns its position; without one the run starts anew (a note is logged).
// Errors: invalid_argument when it was written under another profile, or with the other choice of declared prefixes.
Json restore_training(const RunDirectory& run, Trainer& trainer, const Manifest& manifest, const Profile& profile);

}  // namespace lockstep
