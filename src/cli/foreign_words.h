// Flags and commands of vLLM, llama.cpp, ollama, TRL and unsloth, and their names here (docs/coming-from.md). Constant tables; any thread.
//   fmt::format("unknown option '{}'{}", shown, own_option(name, names))
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// "; here it is --context", where one of `names` (with dashes, as on the command line) does what the option does elsewhere; else "".
std::string own_option(std::string_view name, const std::vector<std::string>& names);
// "; here it is `lockstep chat --model DIR`", or what takes its place; else "".
std::string own_command(std::string_view name);

}  // namespace lockstep
