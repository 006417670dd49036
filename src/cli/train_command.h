// `lockstep train KIND`: what its kinds share.
#pragma once
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"

namespace lockstep {

int train_sft(const Arguments& arguments);
int run_train_rl(const Arguments& arguments);  // train_rl.cpp

// The resolved configuration as config.json keeps it: every option's key and its value as text.
nlohmann::ordered_json resolved_json(const OptionTable& table);
// --fork NEW: the run that `name` names lends its newest checkpoint to a new run NEW. Returns that checkpoint ("" without --fork, and when NEW is
// gone on with) and sets name. Errors: not_found.
std::string fork_of(const std::string& runs, std::string& name, const std::string& fork, bool resume);
inline constexpr const char* kForkHelp = "Begin a new run of this name with the weights of the newest checkpoint of the run --name: other settings, step 0, an optimizer without a past";
// What the user types to go on with a run.
std::string resume_line(const std::string& kind, const Arguments& arguments);

}  // namespace lockstep
