// --keep-forward and what goes with it, of commands that sample for a trainer. What they fill outlives the table.
#pragma once
#include <functional>

#include "cli/options.h"
#include "serving/keep_forward.h"

namespace lockstep {

// `whose`: of what the forwards are: "rollouts'". `after`: called behind each row, for what refuses them all.
void add_keep_forward_options(OptionTable& table, KeepForwardSettings& settings, const std::string& whose, const std::function<void()>& after = {});

}  // namespace lockstep
