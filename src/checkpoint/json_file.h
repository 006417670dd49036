// Small JSON documents in files (config.json, an index, a checkpoint's state): read with limits, one clear error a
// fault. Knows nothing of their keys. Any thread.
//   const Json config = read_json_file(folder / "config.json");
#pragma once
#include <filesystem>

#include "model/config_reader.h"

namespace lockstep {

inline constexpr std::size_t kMostJsonBytes = std::size_t{64} << 20;

// An object, nested at most 64 deep, its keys in their order: at most 20,000 of them, for each is compared with all
// others. Errors: not_found, io, resource_exhausted (longer than most_bytes), corrupt_file.
Json read_json_file(const std::filesystem::path& path, std::size_t most_bytes = kMostJsonBytes);
// The same with keys sorted, and as many as there are.
nlohmann::json read_large_json_file(const std::filesystem::path& path, std::size_t most_bytes = kMostJsonBytes);
// Two spaces a level and a line's end, as transformers writes them.
std::string json_text(const Json& json);

}  // namespace lockstep
