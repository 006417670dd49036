// The tasks of recipes/agent_sft.toml as one Environment, "agent": the twelve of dozen.h and lockbox in turn. A problem's domain is its task.
#pragma once
#include <memory>

#include "rl/environment.h"

namespace lockstep {

std::unique_ptr<Environment> make_agent_environment();

}  // namespace lockstep
