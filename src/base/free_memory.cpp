#include "base/free_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/memory_ledger.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  std::int64_t value = 0;
  if (!(in >> text)) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;  // "max", or beyond 63 bits: no limit
  return value;
}

// The value of "NAME value" or "NAME: value kB".
std::optional<std::int64_t> entry_of(const fs::path& file, const std::string& name, std::int64_t unit) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    std::int64_t value = 0;
    if (words >> word && (word == name || word == name + ":") && words >> value) return value * unit;
  }
  return std::nullopt;
}

void lower(FreeMemory& free, std::int64_t bytes, const char* limit) {
  if (!free.limit.empty() && bytes >= free.bytes) return;
  free.bytes = std::max<std::int64_t>(0, bytes);
  free.limit = limit;
}

// Lowers `free` to a control group's limit less what it uses. Pages of unmapped files, which the system can reclaim, do not count as used.
void lower_by_group(FreeMemory& free, const fs::path& folder, const char* limit_name, const char* usage_name, const char* file_pages) {
  const std::optional<std::int64_t> limit = number_in(folder / limit_name), used = number_in(folder / usage_name);
  if (!limit || !used || *limit >= std::numeric_limits<std::int64_t>::max() / 2) return;  // version 1 says "none" by a number that large
  const std::int64_t pages = entry_of(folder / "memory.stat", file_pages, 1).value_or(0);
  lower(free, *limit - std::max<std::int64_t>(0, *used - pages), "cgroup");
}

// A process in a container may see the paths of the machine and the files of its own group, so the root is looked at always.
void lower_by_groups(FreeMemory& free, const fs::path& root) {
  std::ifstream in(root / "proc/self/cgroup");
  const auto each_up = [&](const fs::path& mount, const std::string& path, const char* limit_name, const char* usage_name, const char* file_pages) {
    for (fs::path at = fs::path(path).relative_path();; at = at.parent_path()) {
      lower_by_group(free, mount / at, limit_name, usage_name, file_pages);
      if (at.empty()) return;
    }
  };
  bool second = false;
  for (std::string line; std::getline(in, line);) {  // "0::/path" or "4:memory:/path"
    const std::size_t first_colon = line.find(':'), second_colon = line.find(':', first_colon + 1);
    if (first_colon == std::string::npos || second_colon == std::string::npos) continue;
    const std::string controllers = line.substr(first_colon + 1, second_colon - first_colon - 1), path = line.substr(second_colon + 1);
    if (controllers.empty()) {
      second = true;
      each_up(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file");
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      each_up(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
    }
  }
  if (!second) each_up(root / "sys/fs/cgroup", "", "memory.max", "memory.current", "inactive_file");
}

void lower_by_limit(FreeMemory& free, decltype(RLIMIT_AS) which, const char* name, const fs::path& root, const char* used_name) {
  rlimit limit{};
  if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > static_cast<rlim_t>(std::numeric_limits<std::int64_t>::max() / 2))
    return;
  const std::int64_t used = entry_of(root / "proc/self/status", used_name, 1024).value_or(0);
  lower(free, static_cast<std::int64_t>(limit.rlim_cur) - used, name);
}
}  // namespace

FreeMemory free_memory(const fs::path& root, bool with_process) {
  FreeMemory free;
  if (const auto available = entry_of(root / "proc/meminfo", "MemAvailable", 1024)) lower(free, *available, "MemAvailable");
  lower_by_groups(free, root);
  if (with_process) {
    lower_by_limit(free, RLIMIT_AS, "RLIMIT_AS", root, "VmSize");
    lower_by_limit(free, RLIMIT_DATA, "RLIMIT_DATA", root, "VmData");
  }
  return free;
}

void check_memory(std::int64_t bytes, const std::string& what) {
  const FreeMemory free = free_memory();
  if (!free.limit.empty() && bytes > free.bytes)
    fail(ErrorCode::resource_exhausted, "{} takes {} of memory, {} are free ({})", what, megabytes_text(bytes), megabytes_text(free.bytes), free.limit);
}

}  // namespace lockstep
