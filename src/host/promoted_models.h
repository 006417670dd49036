// Finds the files of a promoted model, and checks that they were trained under this server's numerics profile.
//   check_profile_of(commons, model); load_model_folder(promoted_folder(commons, model));
#pragma once
#include "host/control_records.h"
#include "host/model_state.h"
#include "host/training_commons.h"

namespace lockstep {

inline std::filesystem::path promoted_folder(const TrainingCommons& commons, const PromotedModel& model) { return commons.options.state / model.folder; }
// Error invalid_argument: its weights were trained under another numerics profile than this server's.
inline void check_profile_of(const TrainingCommons& commons, const PromotedModel& model) {
  if (!model.profile.empty()) check_profile(model.profile, fmt::format("the model '{}'", model.name), commons.runtime().profile);
}

}  // namespace lockstep
