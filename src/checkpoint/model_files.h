// The safetensors files of a Hugging Face folder as one list of tensors: a single file, or the shards that
// model.safetensors.index.json names. Knows nothing of models. Reading from several threads is fine.
//   ModelFiles files(folder); if (const auto found = files.find(name)) found.file->read(*found.tensor, values);
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"

namespace lockstep {

class ModelFiles {
 public:
  struct Found {
    const SafetensorsFile* file = nullptr;
    const SafetensorsTensor* tensor = nullptr;
    explicit operator bool() const { return tensor != nullptr; }
  };

  // Errors: not_found, io, corrupt_file (an index that disagrees with its shards, a tensor in two of them, ...).
  explicit ModelFiles(const std::filesystem::path& folder);
  Found find(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted

 private:
  void open_shards(const std::filesystem::path& folder, const std::filesystem::path& index);
  std::vector<SafetensorsFile> files_;
};

}  // namespace lockstep
