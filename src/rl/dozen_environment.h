// The dozen as Environments: one task, or all twelve in turn (the tasks themselves: rl/dozen.h). A problem's domain is its task.
//   const std::unique_ptr<OneTurnEnvironment> reverse = make_dozen_environment("reverse");
#pragma once
#include <memory>
#include <string>

#include "rl/environment.h"

namespace lockstep {

// "dozen", or "dozen-TASK".
std::vector<std::string> dozen_environment_names();
// Whether a name is one of these, or several tasks that take turns: "dozen-sort+add".
bool is_dozen(std::string_view name);
// The environment of such a name.
std::unique_ptr<OneTurnEnvironment> make_dozen_environment(const std::string& name);

}  // namespace lockstep
