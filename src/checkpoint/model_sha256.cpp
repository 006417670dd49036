#include "checkpoint/model_sha256.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;

void add_file(Sha256& hash, const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorCode::io, "'{}' cannot be read", path.string());
  std::vector<char> piece(kPieceBytes);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0) hash.update(piece.data(), static_cast<std::size_t>(in.gcount()));
  if (in.bad()) fail(ErrorCode::io, "'{}' cannot be read to its end", path.string());
}

bool computed_with(const fs::path& path) {
  const std::string name = path.filename().string();
  return path.extension() == ".safetensors" || name == "config.json" || name == "adapter_config.json" || name == "model.safetensors.index.json";
}
}  // namespace

std::string model_sha256(const fs::path& place) {
  std::error_code error;
  Sha256 hash;
  if (fs::is_regular_file(place, error)) {
    add_file(hash, place);
    return hash.hex();
  }
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(place, error), end; !error && entry != end; entry.increment(error))
    if (std::error_code ignored; entry->is_regular_file(ignored) && computed_with(entry->path())) paths.push_back(entry->path());
  if (paths.empty()) fail(ErrorCode::not_found, "'{}' is neither a folder with a model's or an adapter's files nor a file", place.string());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    hash.update(fmt::format("{} {}\n", path.filename().string(), fs::file_size(path, error)));
    add_file(hash, path);
  }
  return hash.hex();
}

}  // namespace lockstep
