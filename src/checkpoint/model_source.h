// Opens what a user names as a model: a Hugging Face folder, or a GGUF file, which stands for one.
//   const auto files = open_folder_files("model.gguf"); files->read("config.json", kMostJsonBytes);
// Any thread.
#pragma once
#include <filesystem>
#include <memory>

#include "base/folder_files.h"

namespace lockstep {

// Errors: not_found for a name of a hub; those of GgufFile for a GGUF. A folder that is not there simply has no files.
std::unique_ptr<const FolderFiles> open_folder_files(const std::filesystem::path& model);

}  // namespace lockstep
