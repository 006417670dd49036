// Digests of the files of a model's folder, or of one GGUF file, to compare with another host's.
//   for (const FileDigest& file : folder_digests("models/m")) ...
// Reads all of them. Any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct FileDigest {
  std::string name;  // in the folder
  std::int64_t bytes = 0;
  std::uint64_t digest = 0;  // XXH3-64, chained over pieces
  bool operator==(const FileDigest&) const = default;
};

// By name: what a model is read from (.json, .safetensors, .gguf, .jinja, .model and .txt), not what stands in folders of it. Empty where there is no
// such place. Error io for a file that cannot be read.
std::vector<FileDigest> folder_digests(const std::filesystem::path& place);

}  // namespace lockstep
