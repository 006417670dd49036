// --keep-forward and the options that go with it, for commands that sample for a trainer. The settings outlive the table.
//   add_keep_forward_options(table, settings, "rollouts'");
#pragma once
#include <functional>

#include "cli/options.h"
#include "serving/keep_forward.h"

namespace lockstep {

// `whose`: a word of the help, for what the forwards are of: "rollouts'". `after`: called after each row is declared, to add rules of refused().
void add_keep_forward_options(OptionTable& table, KeepForwardSettings& settings, const std::string& whose, const std::function<void()>& after = {});

}  // namespace lockstep
