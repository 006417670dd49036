#include <fmt/format.h>

#include "cli/commands.h"
#include "serving/loading.h"

namespace lockstep {

std::string version_commit() { return LOCKSTEP_COMMIT; }

std::string version_text() {
  const auto build = describe_build();
  std::string text = fmt::format("lockstep {}, commit {}\ninstruction set {}, {} processors\nnumerics profiles:\n", LOCKSTEP_VERSION, version_commit(),
                                 build["instruction_set"].get<std::string>(), build["processors"].get<int>());
  for (const auto& profile : build["profiles"])
    text +=
        fmt::format("  {}  {:<24}{}\n", profile["digest"].get<std::string>(), profile["name"].get<std::string>(), profile["description"].get<std::string>());
  return text;
}

}  // namespace lockstep
