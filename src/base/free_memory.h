// How much memory this process may still allocate: the least of what the machine has available, what its control groups (version 1 and 2, from
// its own up to the root) leave, and its own limits on address space and data. Any thread.
//   const FreeMemory now = free_memory(); use(now.bytes, now.limit);
// Reads /proc, /sys and getrlimit; what cannot be read limits nothing.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

struct FreeMemory {
  std::int64_t bytes = 0;
  std::string limit;  // which limit is the least: "MemAvailable", "cgroup", "RLIMIT_AS", "RLIMIT_DATA"; empty: nothing could be read
};
// `root` stands for / in tests; limits of the process are read where `with_process` says so.
FreeMemory free_memory(const std::filesystem::path& root = "/", bool with_process = true);

// Error resource_exhausted, with the figures, when `what` needs more than this process may still allocate.
void check_memory(std::int64_t bytes, const std::string& what);

}  // namespace lockstep
