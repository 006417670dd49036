// The rows of what reinforcement learning is told (rl/settings.h). One thread.
//   add_rl_options(table, settings, advantages); ... settings.advantages = advantage_kind_by_name(advantages);
#pragma once
#include "cli/options.h"
#include "rl/settings.h"

namespace lockstep {

// `advantages` holds the name of settings.advantages; give it back after parsing.
void add_rl_options(OptionTable& table, RlSettings& settings, std::string& advantages);

}  // namespace lockstep
