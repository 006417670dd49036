// A command of several kinds, as `lockstep snapshot push`: the kind's own function gets the rest of the arguments.
//   return run_kind("snapshot", {{"push", push_command}, {"pull", pull_command}}, "usage: lockstep snapshot push|pull [options]\n", arguments);
#pragma once
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/choice.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"

namespace lockstep {

using CommandKinds = std::vector<std::pair<std::string, int (*)(const Arguments&)>>;

// Prints `help` without a kind, and for --help. Error UsageError for an unknown kind, with those that there are.
inline int run_kind(const std::string& command, const CommandKinds& kinds, const char* help, const Arguments& arguments) {
  const std::string kind = arguments.empty() ? "--help" : arguments[0];
  if (kind == "--help" || kind == "-h") {
    std::fputs(help, stdout);
    return kExitOk;
  }
  std::vector<std::string> names;
  for (const auto& [name, run] : kinds) {
    if (name == kind) return run({arguments.begin() + 1, arguments.end()});
    names.push_back(name);
  }
  throw UsageError(fmt::format("{}: unknown kind '{}', {}", command, kind.substr(0, 60), allowed_are(kind, names)));
}

}  // namespace lockstep
