#include "parity/folder_digests.h"

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

namespace {
constexpr std::size_t kPiece = std::size_t{8} << 20;
constexpr const char* kEndings[] = {".json", ".safetensors", ".gguf", ".jinja", ".model", ".txt"};

FileDigest digest_of_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorCode::io, "'{}' cannot be read", path.string());
  FileDigest file{.name = path.filename().string()};
  std::vector<char> piece(kPiece);
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0) {
    const auto bytes = static_cast<std::size_t>(in.gcount());
    file.digest = xxh3(piece.data(), bytes, file.digest);
    file.bytes += static_cast<std::int64_t>(bytes);
  }
  if (in.bad()) fail(ErrorCode::io, "'{}' cannot be read behind byte {}", path.string(), file.bytes);
  return file;
}
}  // namespace

std::vector<FileDigest> folder_digests(const std::filesystem::path& place) {
  std::error_code error;
  if (std::filesystem::is_regular_file(place, error)) return {digest_of_file(place)};
  std::vector<std::filesystem::path> paths;
  for (std::filesystem::directory_iterator entry(place, error), end; !error && entry != end; entry.increment(error)) {
    const std::string ending = entry->path().extension().string();
    if (std::error_code ignored; entry->is_regular_file(ignored) && std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings))
      paths.push_back(entry->path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<FileDigest> files;
  for (const std::filesystem::path& path : paths) files.push_back(digest_of_file(path));
  return files;
}

}  // namespace lockstep
