// A model is a folder here; elsewhere people name one as a hub does, "org/name". Any thread.
//   refuse_hub_name("Qwen/Qwen3-0.6B");
#pragma once
#include <string>

namespace lockstep {

// Error not_found with the way to get such a folder, when `model` looks like a hub's name: two parts, of which not even the first is there
// (where it is, the second is rather misspelt, and whoever reads the folder says so).
void refuse_hub_name(const std::string& model);

}  // namespace lockstep
