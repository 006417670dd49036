// The tasks of recipes/agent_sft.toml as one Environment, "agent": the twelve of rl/dozen.h, then Lockbox, in turn. A problem's domain is its task.
//   const std::unique_ptr<Environment> agent = make_agent_environment();
#pragma once
#include <memory>

#include "rl/environment.h"

namespace lockstep {

std::unique_ptr<Environment> make_agent_environment();

}  // namespace lockstep
