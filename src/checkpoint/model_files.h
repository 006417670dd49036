// The tensors of a model as one list: of a Hugging Face folder with one safetensors file, or with the shards that model.safetensors.index.json names,
// or of a GGUF file. Knows nothing of models. Several threads may read.
//   ModelFiles files(folder); if (const auto found = files.find(name)) found.file->read(*found.tensor, values);
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_file.h"

namespace lockstep {

class ModelFiles {
 public:
  struct Found {
    const TensorFile* file = nullptr;
    const SafetensorsTensor* tensor = nullptr;
    explicit operator bool() const { return tensor != nullptr; }
  };

  // Errors: not_found, io, corrupt_file (an index that disagrees with its shards, a tensor in two of them, ...).
  explicit ModelFiles(const std::filesystem::path& model);
  // Of files that are open already, at least one.
  explicit ModelFiles(std::vector<std::unique_ptr<const TensorFile>> files) : files_(std::move(files)) {}
  const std::string& label() const { return files_.front()->label(); }
  Found find(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted
  std::string format() const;              // "safetensors", "GGUF version 3"
  StoredTypes types() const;

 private:
  void open_shards(const std::filesystem::path& folder, const std::filesystem::path& index);
  std::vector<std::unique_ptr<const TensorFile>> files_;
};

// For messages: the first few of these, quoted.
std::string first_few(const std::vector<std::string>& names);

}  // namespace lockstep
