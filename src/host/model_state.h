// Converts between the state of a client's model and training checkpoints (checkpoint/training_checkpoint.h).
//   write_trained_model(on, folder, model, profile.digest(), true); restore_model(on, fresh, load_checkpoint(folder, fresh.manifest()), profile, true);
#pragma once
#include "checkpoint/training_checkpoint.h"
#include "serving/on_executor.h"
#include "trained/trained_model.h"

namespace lockstep {

// Writes a checkpoint of it, a few parameters at a time; without the optimizer's state for samplers. `digest`: Profile::training_digest. Returns its step.
std::int64_t write_trained_model(const OnExecutor& on, const std::filesystem::path& folder, TrainedModel& model, const std::string& digest, bool optimizer);
// `optimizer` false: moments and the count of steps start anew. Error invalid_argument for another profile's checkpoint.
void restore_model(const OnExecutor& on, TrainedModel& model, TrainingCheckpoint&& checkpoint, const Profile& profile, bool optimizer);
// Error invalid_argument when `digest`, which `what` was written under, is neither of the profile's training digests.
void check_profile(const std::string& digest, const std::string& what, const Profile& profile);
// Whether it says that prefixes were declared in training.
bool says_declared(const std::string& digest, const Profile& profile);

}  // namespace lockstep
