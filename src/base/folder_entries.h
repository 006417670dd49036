// Lists the names in a folder.
//   for (const std::string& name : entries_in(folder)) use(folder / name);
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// Names, sorted. Errors: not_found; io.
std::vector<std::string> entries_in(const std::filesystem::path& folder);

}  // namespace lockstep
