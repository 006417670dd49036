#include "checkpoint/model_sha256.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file_pieces.h"
#include "base/hash.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
bool computed_with(const fs::path& path) {
  const std::string name = path.filename().string();
  return path.extension() == ".safetensors" || name == "config.json" || name == "adapter_config.json" || name == "model.safetensors.index.json";
}
}  // namespace

std::string model_sha256(const fs::path& place) {
  std::error_code error;
  Sha256 hash;
  const auto add_file = [&hash](const fs::path& path) { for_file_pieces(path, [&hash](std::string_view piece) { hash.update(piece); }); };
  if (fs::is_regular_file(place, error)) {
    add_file(place);
    return hash.hex();
  }
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(place, error), end; !error && entry != end; entry.increment(error))
    if (std::error_code ignored; entry->is_regular_file(ignored) && computed_with(entry->path())) paths.push_back(entry->path());
  if (paths.empty()) fail(ErrorCode::not_found, "'{}' is neither a folder with a model's or an adapter's files nor a file", place.string());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    hash.update(fmt::format("{} {}\n", path.filename().string(), fs::file_size(path, error)));
    add_file(path);
  }
  return hash.hex();
}

}  // namespace lockstep
