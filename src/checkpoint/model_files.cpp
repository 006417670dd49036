#include "checkpoint/model_files.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hub_name.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/json_file.h"
#include "checkpoint/safetensors.h"

namespace lockstep {
namespace fs = std::filesystem;

ModelFiles::ModelFiles(const fs::path& folder) {
  if (is_gguf_file(folder)) {
    files_.push_back(std::make_unique<GgufTensors>(GgufFile::open(folder)));
    return;
  }
  const fs::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  std::error_code error;
  if (fs::exists(single, error)) {
    files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(single)));
  } else if (fs::exists(index, error)) {
    open_shards(folder, index);
  } else {
    const bool pickled = fs::exists(folder / "pytorch_model.bin", error) || fs::exists(folder / "pytorch_model.bin.index.json", error);
    fail(ErrorCode::not_found, "'{}' holds neither model.safetensors nor model.safetensors.index.json{}", folder.string(),
         pickled ? "; pytorch_model.bin is not read: `AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW)` of transformers writes safetensors" : "");
  }
}

void ModelFiles::open_shards(const fs::path& folder, const fs::path& index) {
  const nlohmann::json json = read_large_json_file(index);
  if (!json.contains("weight_map") || !json.at("weight_map").is_object() || json.at("weight_map").empty())
    fail(ErrorCode::corrupt_file, "'{}': 'weight_map' is missing, empty or no object", index.string());
  std::map<std::string, std::map<std::string, bool>> shards;  // file -> its tensors, each seen or not
  for (const auto& [name, value] : json.at("weight_map").items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    if (file.empty() || file == ".." || file == "." || file.find('/') != std::string::npos || file.find('\0') != std::string::npos)
      fail(ErrorCode::corrupt_file, "'{}': the file of tensor {} is {}, allowed is the name of a file in the same folder", index.string(), quoted_name(name),
           value.is_string() ? quoted_name(file) : std::string(value.type_name()));
    shards[file].emplace(name, false);
  }
  for (auto& [file, wanted] : shards) {
    files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(folder / file)));
    for (const SafetensorsTensor& tensor : files_.back()->tensors()) {
      const auto found = wanted.find(tensor.name);
      if (found == wanted.end())
        fail(ErrorCode::corrupt_file, "'{}' holds tensor {}, which '{}' does not place there", files_.back()->label(), quoted_name(tensor.name),
             index.string());
      found->second = true;
    }
    for (const auto& [name, seen] : wanted)
      if (!seen)
        fail(ErrorCode::corrupt_file, "'{}' does not hold tensor {}, which '{}' places there", files_.back()->label(), quoted_name(name), index.string());
  }
}

ModelFiles::Found ModelFiles::find(std::string_view name) const {
  for (const auto& file : files_)
    if (const SafetensorsTensor* tensor = file->find(name)) return {file.get(), tensor};
  return {};
}

std::vector<std::string> ModelFiles::names() const {
  std::vector<std::string> all;
  for (const auto& file : files_)
    for (const SafetensorsTensor& tensor : file->tensors()) all.push_back(tensor.name);
  std::sort(all.begin(), all.end());
  return all;
}

std::string ModelFiles::format() const { return files_.front()->format(); }

StoredTypes ModelFiles::types() const {
  StoredTypes types;
  for (const auto& file : files_) file->count_types(types);
  return types;
}

std::string first_few(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i) text += (i ? ", " : "") + quoted_name(names[i]);
  return text + (names.size() > 3 ? ", ..." : "");
}

}  // namespace lockstep
