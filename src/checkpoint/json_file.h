// Reads and writes small JSON files (config.json, an index, a checkpoint's state) within limits. Knows nothing of their keys. Any thread.
//   const Json config = read_json_file(folder / "config.json");
#pragma once
#include <filesystem>

#include "base/folder_files.h"
#include "model/config_reader.h"

namespace lockstep {

inline constexpr std::size_t kMostJsonBytes = std::size_t{64} << 20;

// An object, nested at most 64 deep, with its keys in file order, at most 20,000 of them since each is compared with all
// others. Errors: not_found, io, resource_exhausted (longer than most_bytes), corrupt_file.
Json read_json_file(const std::filesystem::path& path, std::size_t most_bytes = kMostJsonBytes);
// The same of a model's small files.
Json read_json_file(const FolderFiles& files, const std::string& name, std::size_t most_bytes = kMostJsonBytes);
// The same with keys sorted, without a limit on their number.
nlohmann::json read_large_json_file(const std::filesystem::path& path, std::size_t most_bytes = kMostJsonBytes);
// Indented by two spaces, with a final newline, as transformers writes them.
std::string json_text(const Json& json);

}  // namespace lockstep
