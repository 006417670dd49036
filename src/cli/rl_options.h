// Option rows of reinforcement learning (rl/settings.h). One thread.
//   add_rl_options(table, settings);
#pragma once
#include "cli/options.h"
#include "rl/settings.h"

namespace lockstep {

// When the table has read all options, --algorithm sets the settings whose own options were not given on the command line or in the file.
// `settings` outlives the table.
void add_rl_options(OptionTable& table, RlSettings& settings);
// --compact-at, of commands with an environment. Both outlive the table.
void add_window_option(OptionTable& table, std::int64_t* compact_at, const std::string* environment);
// --chat, of commands that play an environment.
void add_chat_option(OptionTable& table, bool* chat);

}  // namespace lockstep
