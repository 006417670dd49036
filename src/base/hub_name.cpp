#include "base/hub_name.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace lockstep {
namespace {
bool is_part(std::string_view part) {
  return !part.empty() && std::isalnum(static_cast<unsigned char>(part[0])) &&
         std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

constexpr const char* kModelFolder = "a model is a folder with config.json, safetensors and tokenizer.json, as Hugging Face has it, or a GGUF file";

// The first of a folder's GGUF files by name; empty: it has none.
std::string gguf_in(const std::filesystem::path& folder) {
  std::string first;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (const std::string name = entry->path().filename().string(); entry->path().extension() == ".gguf" && (first.empty() || name < first)) first = name;
  return first;
}
}  // namespace

void refuse_other_model(const std::string& model) {
  refuse_hub_name(model);
  const std::filesystem::path path = model;
  std::error_code error;
  if (is_gguf_file(path)) return;
  if (std::filesystem::is_regular_file(path, error) && path.extension() != ".json") fail(ErrorCode::unsupported, "'{}' is a file; {}", model, kModelFolder);
  if (!std::filesystem::is_directory(path, error) || std::filesystem::exists(path / "config.json", error)) return;
  if (std::filesystem::exists(path / "adapter_config.json", error))
    fail(ErrorCode::unsupported,
         "'{}' is an adapter, no model: `lockstep serve --model BASE --adapter NAME={}` serves it over the model that it was trained on", model, model);
  if (const std::string first = gguf_in(path); !first.empty())
    fail(ErrorCode::unsupported, "'{}' holds GGUF files and no config.json; name the file: {}", model, (path / first).string());
}

bool is_gguf_file(const std::filesystem::path& model) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(model, error)) return false;
  if (model.extension() == ".gguf") return true;
  char first[4] = {};
  return std::ifstream(model, std::ios::binary).read(first, sizeof(first)) && std::string_view(first, sizeof(first)) == "GGUF";
}

void refuse_hub_name(const std::string& model) {
  const std::size_t slash = model.find('/');
  if (slash == std::string::npos || !is_part(std::string_view(model).substr(0, slash)) || !is_part(std::string_view(model).substr(slash + 1))) return;
  std::error_code error;
  if (std::filesystem::exists(model.substr(0, slash), error)) return;
  const std::string folder = "models/" + model.substr(slash + 1);
  fail(ErrorCode::not_found,
       "there is no folder '{}': a model is a folder on this machine. A hub's model of that name becomes one with `pip install huggingface_hub` and `hf "
       "download {} --local-dir {}`; then the model is {}",
       model, model, folder, folder);
}

}  // namespace lockstep
