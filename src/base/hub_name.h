// Refuses model names that are no local folder, such as a hub's "org/name" or a weights file, with an error that says what to do. Any thread.
//   refuse_hub_name("Qwen/Qwen3-0.6B");
#pragma once
#include <filesystem>
#include <string>

namespace lockstep {

// Error not_found with the command that downloads such a folder, when `model` looks like a hub's name: two parts, the first no existing folder
// (if it exists, the second is more likely misspelt, which reading the folder reports).
void refuse_hub_name(const std::string& model);

// The same, and error unsupported for what other programs take as a model: a weights file (.safetensors, .bin), a folder of GGUF files, an
// adapter. The path of a config.json and that of a GGUF file are let pass.
void refuse_other_model(const std::string& model);

// Whether a model is a GGUF file: a file whose name ends so, or whose first bytes say it.
bool is_gguf_file(const std::filesystem::path& model);

}  // namespace lockstep
