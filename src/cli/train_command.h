// `lockstep train KIND`: shared by its kinds.
#pragma once
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"

namespace lockstep {

struct SftAsked;

int train_sft(const Arguments& arguments);
int run_train_rl(const Arguments& arguments);  // train_rl.cpp
int train_distill(const Arguments& arguments);
// `loss`: of a command that is named after it; empty: --loss says it.
int train_preference(const Arguments& arguments, const std::string& loss);

// Rows of runs that learn from a file of texts (sft, preference). What they fill outlives the table.
void add_reading_options(OptionTable& table, std::string& end_token, std::string& chat_template);
void add_schedule_options(OptionTable& table, SftAsked& asked);

// The resolved configuration as config.json keeps it: every option's key and its value as text.
nlohmann::ordered_json resolved_json(const OptionTable& table);
// --fork NEW: the run that `name` names lends its newest checkpoint to a new run NEW. Returns that checkpoint ("" without --fork, and when NEW is
// gone on with) and sets name. Errors: not_found.
std::string fork_of(const std::string& runs, std::string& name, const std::string& fork, bool resume);
inline constexpr const char* kForkHelp =
    "Begin a new run of this name with the weights of the newest checkpoint of the run --name: other settings, step 0, a fresh optimizer";
// The command that resumes a run.
std::string resume_line(const std::string& kind, const Arguments& arguments);

}  // namespace lockstep
