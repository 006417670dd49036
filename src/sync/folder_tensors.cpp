#include "sync/folder_tensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
// The header of a file of these tensors, with its length before it.
std::string file_header(const TensorShape* first, std::size_t count) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t at = 0;
  for (const TensorShape* tensor = first; tensor != first + count; ++tensor) {
    text += fmt::format(",{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", nlohmann::json(tensor->name).dump(),
                        safetensors_type_name(tensor->type), fmt::join(tensor->shape, ","), at, at + tensor->bytes);
    at += tensor->bytes;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
}
}  // namespace

bool is_adapter_folder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kAdapterConfig, error) && !fs::exists(folder / "config.json", error);
}

namespace {
ModelFiles files_of(const fs::path& folder) {
  if (!is_adapter_folder(folder)) return ModelFiles(folder);
  std::vector<std::unique_ptr<const TensorFile>> files;
  files.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(folder / "adapter_model.safetensors")));
  return ModelFiles(std::move(files));
}
}  // namespace

FolderTensors::FolderTensors(const fs::path& folder) : files_(files_of(folder)) {
  if (files_.format() != "safetensors")
    fail(ErrorCode::unsupported, "'{}' is {}; snapshots are made of safetensors: `lockstep convert FILE.gguf DIR` writes such a folder", folder.string(),
         files_.format());
  for (const std::string& name : files_.names()) {
    const SafetensorsTensor& tensor = *files_.find(name).tensor;
    list_.push_back({name, tensor.type, tensor.shape, tensor.end - tensor.begin});
  }
}

const TensorShape* FolderTensors::find(std::string_view name) const {
  const auto found = std::lower_bound(list_.begin(), list_.end(), name, [](const TensorShape& t, std::string_view wanted) { return t.name < wanted; });
  return found != list_.end() && found->name == name ? &*found : nullptr;
}

std::string FolderTensors::read(const TensorShape& tensor) const {
  const auto found = files_.find(tensor.name);
  std::string bytes(static_cast<std::size_t>(tensor.bytes), '\0');
  if (!bytes.empty()) found.file->read_bytes(*found.tensor, {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()});
  return bytes;
}

void write_folder_tensors(const fs::path& folder, const std::vector<TensorShape>& tensors, const std::function<std::string(std::size_t)>& read,
                          std::uint64_t most_shard_bytes, std::string_view stem) {
  std::vector<std::size_t> begins;  // of shards
  std::uint64_t bytes = 0, all = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i == 0 || bytes + tensors[i].bytes > most_shard_bytes) {
      begins.push_back(i);
      bytes = 0;
    }
    bytes += tensors[i].bytes;
    all += tensors[i].bytes;
  }
  nlohmann::ordered_json index;
  index["metadata"]["total_size"] = all;
  nlohmann::json places = nlohmann::json::object();
  for (std::size_t shard = 0; shard < begins.size(); ++shard) {
    const std::size_t begin = begins[shard], end = shard + 1 < begins.size() ? begins[shard + 1] : tensors.size();
    const std::string name =
        begins.size() == 1 ? fmt::format("{}.safetensors", stem) : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, shard + 1, begins.size());
    AtomicFile file(folder / name);
    file.write(file_header(tensors.data() + begin, end - begin));
    for (std::size_t i = begin; i < end; ++i) {
      file.write(read(i));
      places[tensors[i].name] = name;
    }
    file.commit();
  }
  if (begins.size() == 1) return;
  index["weight_map"] = places;
  write_file_atomic(folder / fmt::format("{}.safetensors.index.json", stem), index.dump(2) + "\n");
}

}  // namespace lockstep
