// The SHA-256 of the files that a model, or an adapter, computes with: its configuration and its tensors, not its tokenizer.
//   model_sha256("runs/a/export") == "5f1c..."
// Reads all of them. Any thread.
#pragma once
#include <filesystem>
#include <string>

namespace lockstep {

// Of a folder: config.json, adapter_config.json, the index and all .safetensors files, by name, each with its name and length; of a GGUF file: its bytes.
// Errors: not_found where there is neither, or nothing of it in a folder; io.
std::string model_sha256(const std::filesystem::path& place);

}  // namespace lockstep
