// The tensors of a Hugging Face folder as raw bytes of its safetensors files, whatever their types; and writing such folders. Knows no model. Several
// threads may read.
//   const FolderTensors tensors("models/m");  for (const auto& t : tensors.list()) bytes = tensors.read(t);
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_files.h"
#include "checkpoint/tensor_file.h"

namespace lockstep {

struct TensorShape {
  std::string name;
  SafetensorsType type = SafetensorsType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

class FolderTensors {
 public:
  // Errors: those of ModelFiles; unsupported for a GGUF file.
  // A folder with adapter_config.json and no config.json is an adapter's, as peft writes it.
  explicit FolderTensors(const std::filesystem::path& folder);
  const std::vector<TensorShape>& list() const { return list_; }  // sorted by name
  const TensorShape* find(std::string_view name) const;
  std::string read(const TensorShape& tensor) const;  // Errors: io, corrupt_file (the file became shorter)

 private:
  ModelFiles files_;
  std::vector<TensorShape> list_;
};

inline constexpr const char* kAdapterConfig = "adapter_config.json";
bool is_adapter_folder(const std::filesystem::path& folder);

// Writes NAME.safetensors into a folder, or shards of at most `most_shard_bytes` of tensors with NAME.safetensors.index.json, as transformers
// does: tensors in the order given, which is by name. `read(i)` gives the bytes of tensor i. Errors: io; those of read.
void write_folder_tensors(const std::filesystem::path& folder, const std::vector<TensorShape>& tensors, const std::function<std::string(std::size_t)>& read,
                          std::uint64_t most_shard_bytes = 5'000'000'000, std::string_view name = "model");

}  // namespace lockstep
