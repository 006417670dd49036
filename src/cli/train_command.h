// `lockstep train KIND`: shared by its kinds.
#pragma once
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/options.h"

namespace lockstep {

struct RunSettings;
struct SftAsked;

int train_sft(const Arguments& arguments);
int run_train_rl(const Arguments& arguments);  // train_rl.cpp
int train_distill(const Arguments& arguments);
// `loss`: of a command that is named after it; empty: --loss says it.
int train_preference(const Arguments& arguments, const std::string& loss);

// Rows of runs that learn from a file of texts (sft, preference). What they fill outlives the table.
void add_reading_options(OptionTable& table, std::string& end_token, std::string& chat_template);
void add_schedule_options(OptionTable& table, SftAsked& asked);
// --checkpoint-every and --keep-last of every run.
void add_checkpoint_options(OptionTable& table, RunSettings& run);

// What config.json keeps of a run: every option's key and its value as text, and which of them nobody set; the command that resumes it. `fork` (not
// empty) is the name of a new run, to which the one that `run.name` names lends its newest checkpoint. Errors: not_found.
void describe_run(RunSettings& run, const OptionTable& table, const std::string& kind, const Arguments& arguments, const std::string& fork);
inline constexpr const char* kForkHelp =
    "Begin a new run of this name with the weights of the newest checkpoint of the run --name: other settings, step 0, a fresh optimizer";

}  // namespace lockstep
