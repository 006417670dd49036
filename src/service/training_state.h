// Between a trainer and its checkpoints on disk: one place for both kinds of run.
#pragma once
#include <filesystem>
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

// Writes checkpoints/step-N atomically; `position` is the caller's (data, random numbers).
void save_training(const RunDirectory& run, Trainer& trainer, const Manifest& manifest, const Profile& profile, const Json& position, int keep_last);

// Restores the newest valid checkpoint and returns its position; without one the run starts anew (a note is logged).
// Errors: invalid_argument when it was written under another profile, or with the other choice of declared prefixes.
Json restore_training(const RunDirectory& run, Trainer& trainer, const Manifest& manifest, const Profile& profile);

}  // namespace lockstep
