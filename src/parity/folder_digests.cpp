#include "parity/folder_digests.h"

#include <algorithm>
#include <iterator>

#include "base/file_pieces.h"
#include "base/hash.h"

namespace lockstep {

namespace {
constexpr const char* kEndings[] = {".json", ".safetensors", ".gguf", ".jinja", ".model", ".txt"};

FileDigest digest_of_file(const std::filesystem::path& path) {
  FileDigest file{.name = path.filename().string()};
  for_file_pieces(path, [&file](std::string_view piece) {
    file.digest = xxh3(piece.data(), piece.size(), file.digest);
    file.bytes += static_cast<std::int64_t>(piece.size());
  });
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
