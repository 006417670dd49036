// A model is a folder here; elsewhere people name one as a hub does, "org/name", or by a file of weights. Any thread.
//   refuse_hub_name("Qwen/Qwen3-0.6B");
#pragma once
#include <string>

namespace lockstep {

// Error not_found with the way to get such a folder, when `model` looks like a hub's name: two parts, of which not even the first is there
// (where it is, the second is rather misspelt, and whoever reads the folder says so).
void refuse_hub_name(const std::string& model);

// The same, and what is given for a model elsewhere: a file of weights (.gguf, .safetensors, .bin), a folder of GGUF files, an adapter. Error unsupported,
// which says what is read. The path of a config.json is none of these.
void refuse_other_model(const std::string& model);

}  // namespace lockstep
