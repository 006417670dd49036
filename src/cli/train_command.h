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
// What the user types to go on with a run.
std::string resume_line(const std::string& kind, const Arguments& arguments);

}  // namespace lockstep
