// Between a trainer and its checkpoints on disk: one place for both kinds of run.
#pragma once
#include "checkpoint/run_directory.h"
#include "checkpoint/training_checkpoint.h"
#include "numerics/profile.h"
#include "train/trainer.h"

namespace lockstep {

// Writes checkpoints/step-N atomically; `position` is the caller's (data, random numbers).
void save_training(const RunDirectory& run, Trainer& trainer, const Manifest& manifest, const Profile& profile, const Json& position, int keep_last);

// Restores the newest valid checkpoint and returns its position; without one the run starts anew (a note is logged).
// Errors: invalid_argument when it was written under another profile, or with the other choice of declared prefixes.
Json restore_training(const RunDirectory& run, Trainer& trainer, const Manifest& manifest, const Profile& profile);

}  // namespace lockstep
