// Facts about this machine: processor, physical cores, memory and its read bandwidth, limits.
//   const MachineFacts facts = read_machine(); const double gb = memory_speed(facts.usable_processors).gigabytes_per_second;
// Reads /proc, /sys and the process's own limits; what cannot be read is left at 0 or empty. Knows no model. Any thread.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

struct MachineFacts {
  std::string processor;                                                              // the model's name
  std::vector<std::string> features;                                                  // of those that matter here: avx2, fma, f16c, avx512f, ..., in this order
  std::int64_t processors = 0;                                                        // logical ones that are online
  std::int64_t usable_processors = 0;                                                 // of them, for this process (affinity)
  std::int64_t cores = 0;                                                             // real ones among the usable: siblings of one core count once; 0: unknown
  std::int64_t nodes = 0;                                                             // NUMA, those without a usable processor too
  std::vector<std::int64_t> node_processors;                                          // usable ones a node that has some; empty: unknown
  double processor_quota = 0;                                                         // processors' worth of time a container may use; 0: no limit
  bool virtual_machine = false;                                                       // then siblings may be hidden
  std::string frequency_governor;                                                     // empty: unknown or the hypervisor's business
  std::int64_t memory_bytes = 0, memory_available_bytes = 0, memory_limit_bytes = 0;  // limit: of a container, 0: none
  std::int64_t open_files = 0;                                                        // soft limit
  std::int64_t open_files_hard = 0;
};

// `root` stands for / in tests.
MachineFacts read_machine(const std::filesystem::path& root = "/");

// Gigabytes (1e9) a second that `threads` threads read from memory together: the best of several ways of reading (numerics/isa/memory_reads.h)
// over a block far larger than caches (at most an eighth of what is available). 0 when there is not enough memory to tell.
struct MemorySpeed {
  double gigabytes_per_second = 0;
  std::string how;  // the way that was the fastest
};
MemorySpeed memory_speed(std::int64_t threads);

}  // namespace lockstep
