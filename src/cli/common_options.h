// Option rows that several commands share. Knows the option table and the settings they fill. One thread.
//   add_runtime_options(table, settings);
#pragma once
#include "cli/options.h"
#include "serving/loading.h"

namespace lockstep {

// --model (required), --profile, --threads, --backend, --isa, --mla-norm-eps, --context; defaults are what `settings` holds.
void add_runtime_options(OptionTable& table, RuntimeSettings& settings);
// All of them but --model.
void add_device_options(OptionTable& table, RuntimeSettings& settings);
// --ranks: how the model and the work are laid out.
void add_ranks_option(OptionTable& table, std::string* ranks);
// --json: `one_line` says what it prints.
void add_json_option(OptionTable& table, bool* json, std::string one_line = "Print one JSON object and nothing else");

}  // namespace lockstep
