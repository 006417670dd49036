// The special tokens that a model's folder names, whether or not it has a template. Any thread.
//   const std::map<std::string, std::string> tokens = special_tokens_of(*open("models/m")); tokens.at("eos_token");
#pragma once
#include <map>
#include <string>

#include "base/folder_files.h"

namespace lockstep {

// bos_token, eos_token, ... of tokenizer_config.json and special_tokens_map.json. Errors: corrupt_file.
std::map<std::string, std::string> special_tokens_of(const FolderFiles& files);

}  // namespace lockstep
