#include "base/folder_entries.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include "base/error.h"

namespace lockstep {
namespace {
[[noreturn]] void fail_to_list(const std::filesystem::path& folder, int error) {
  fail(error == ENOENT ? ErrorCode::not_found : ErrorCode::io, "cannot list '{}': {}", folder.string(), std::generic_category().message(error));
}
}  // namespace

// Not by std::filesystem's iterators: in them an allocation that fails ends the program.
std::vector<std::string> entries_in(const std::filesystem::path& folder) {
  struct Closer {
    DIR* stream;
    ~Closer() { closedir(stream); }
  };
  DIR* const stream = opendir(folder.c_str());
  if (!stream) fail_to_list(folder, errno);
  const Closer closer{stream};
  std::vector<std::string> names;
  for (errno = 0; const dirent* entry = readdir(stream); errno = 0) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) fail_to_list(folder, errno);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lockstep
