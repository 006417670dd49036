// Option rows of reinforcement learning (rl/settings.h). One thread.
//   add_rl_options(table, settings);
#pragma once
#include "cli/options.h"
#include "rl/settings.h"

namespace lockstep {

// The parts of --algorithm that have no option of their own on the command line or in the file are set when the table has read all. `settings`
// outlives the table.
void add_rl_options(OptionTable& table, RlSettings& settings);
// --compact-at, of commands with an environment. Both outlive the table.
void add_window_option(OptionTable& table, std::int64_t* compact_at, const std::string* environment);

}  // namespace lockstep
