// The dozen as Environments: one task, or all twelve in turn (the tasks themselves: rl/dozen.h). A problem's domain is its task.
//   const std::unique_ptr<OneTurnEnvironment> reverse = make_dozen_environment("reverse");
#pragma once
#include <memory>
#include <string>

#include "rl/environment.h"

namespace lockstep {

// "dozen", or "dozen-TASK".
std::vector<std::string> dozen_environment_names();
// Whether it is one of these names, or some tasks in turn: "dozen-sort+add".
bool is_dozen(std::string_view name);
// Of such a name.
std::unique_ptr<OneTurnEnvironment> make_dozen_environment(const std::string& name);

}  // namespace lockstep
