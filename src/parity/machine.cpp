#include "parity/machine.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/processor_nodes.h"
#include "base/seconds.h"
#include "base/thread_pool.h"
#include "numerics/isa/memory_reads.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;
constexpr const char* kFeatures[] = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "amx_bf16"};

// The first line, or empty.
std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::int64_t to_integer(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

void read_cpuinfo(const fs::path& root, MachineFacts& facts) {
  std::ifstream in(root / "proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string value = colon + 2 <= line.size() ? line.substr(colon + 2) : "";
    if (line.starts_with("processor")) ++facts.processors;
    if (line.starts_with("model name") && facts.processor.empty()) facts.processor = value;
    if (line.starts_with("flags") && flags.empty()) {
      std::istringstream words(value);
      for (std::string word; words >> word;) flags.insert(word);
    }
  }
  for (const char* feature : kFeatures)
    if (flags.contains(feature)) facts.features.emplace_back(feature);
  facts.virtual_machine = flags.contains("hypervisor");
}

void read_topology(const fs::path& root, MachineFacts& facts) {
  const std::vector<int> usable = usable_processors();
  std::set<std::string> cores;
  facts.usable_processors = static_cast<std::int64_t>(usable.size());
  for (const int cpu : usable) {
    // The list of a core's siblings names the core.
    const std::string siblings = first_line(root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology/thread_siblings_list");
    if (!siblings.empty()) cores.insert(siblings);
  }
  facts.cores = static_cast<std::int64_t>(cores.size());
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", ignored)) {
    const std::string name = entry.path().filename().string();
    facts.nodes += name.size() > 4 && name.starts_with("node") && std::all_of(name.begin() + 4, name.end(), ::isdigit);
  }
  for (const auto& processors : processor_nodes(root, usable)) facts.node_processors.push_back(static_cast<std::int64_t>(processors.size()));
  facts.frequency_governor = first_line(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
}

void read_limits(const fs::path& root, MachineFacts& facts) {
  std::ifstream in(root / "proc/meminfo");
  std::string name, unit;
  for (std::int64_t kib = 0; in >> name >> kib; std::getline(in, unit)) {
    if (name == "MemTotal:") facts.memory_bytes = kib << 10;
    if (name == "MemAvailable:") facts.memory_available_bytes = kib << 10;
  }
  // Control groups, version 2: "max 100000" or "150000 100000"; "max" or bytes.
  std::istringstream quota(first_line(root / "sys/fs/cgroup/cpu.max"));
  std::string most;
  double period = 0;
  if (quota >> most >> period && most != "max" && period > 0) facts.processor_quota = static_cast<double>(to_integer(most)) / period;
  const std::string memory = first_line(root / "sys/fs/cgroup/memory.max");
  if (!memory.empty() && memory != "max") facts.memory_limit_bytes = to_integer(memory);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    facts.open_files = static_cast<std::int64_t>(std::min<rlim_t>(files.rlim_cur, INT64_MAX));
    facts.open_files_hard = static_cast<std::int64_t>(std::min<rlim_t>(files.rlim_max, INT64_MAX));
  }
}
}  // namespace

MachineFacts read_machine(const fs::path& root) {
  MachineFacts facts;
  read_cpuinfo(root, facts);
  read_topology(root, facts);
  read_limits(root, facts);
  return facts;
}

MemorySpeed memory_speed(std::int64_t threads) {
  constexpr std::int64_t kWanted = std::int64_t{512} << 20, kLeast = std::int64_t{64} << 20, kHugePage = std::int64_t{2} << 20;
  constexpr int kPasses = 2, kMorePasses = 8;
  constexpr std::size_t kTogether = 128;  // numbers of 8 bytes: a line of 16 streams
  const MachineFacts facts = read_machine();
  std::int64_t available = facts.memory_available_bytes;
  if (facts.memory_limit_bytes > 0) available = std::min(available, facts.memory_limit_bytes);
  const std::int64_t bytes = std::min(kWanted, available / 8) / kHugePage * kHugePage;
  MemorySpeed speed;
  if (bytes < kLeast) return speed;
  // Large pages, as many as the system gives: with small ones the ruler would wait for their table.
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(static_cast<std::size_t>(kHugePage), static_cast<std::size_t>(bytes)),
                                                           &std::free);
  if (!memory) return speed;
  madvise(memory.get(), static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  auto* block = static_cast<std::uint64_t*>(memory.get());
  const std::size_t numbers = static_cast<std::size_t>(bytes) / 8;
  std::fill_n(block, numbers, std::uint64_t{1});
  ThreadPool pool(static_cast<int>(threads));
  const std::int64_t parts = threads * 4;
  const std::size_t part_numbers = numbers / static_cast<std::size_t>(parts) / kTogether * kTogether;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(parts));
  const auto pass = [&](const MemoryRead& how) {
    const auto begin = std::chrono::steady_clock::now();
    pool.run(parts, [&](std::int64_t part) {
      sums[static_cast<std::size_t>(part)] = read_memory(how, block + static_cast<std::size_t>(part) * part_numbers, part_numbers);
    });
    const double seconds = seconds_since(begin);
    std::uint64_t total = 0;
    for (const std::uint64_t sum : sums) total += sum;
    if (total != part_numbers * static_cast<std::size_t>(parts))
      fail(ErrorCode::internal, "{} numbers of 1 add up to {}", part_numbers * static_cast<std::size_t>(parts), total);
    return seconds > 0 ? static_cast<double>(total * 8) / seconds / 1e9 : 0.0;
  };
  std::vector<MemoryRead> reads;
  for (const MemoryReadKind kind : {MemoryReadKind::plain, MemoryReadKind::prefetched, MemoryReadKind::non_temporal})
    for (const int streams : {1, 2, 4, 8, 16}) reads.push_back({kind, streams});
  MemoryRead best;
  const auto take = [&](const MemoryRead& how, int passes) {
    for (int i = 0; i < passes; ++i)
      if (const double reached = pass(how); reached > speed.gigabytes_per_second) {
        constexpr std::string_view kKinds[] = {"plain", "prefetched", "non-temporal"};
        speed = {reached, fmt::format("{} reads in {} stream{}", kKinds[static_cast<int>(how.kind)], how.streams, how.streams == 1 ? "" : "s")};
        best = how;
      }
  };
  for (const MemoryRead& how : reads) take(how, kPasses);
  take(MemoryRead(best), kMorePasses);
  return speed;
}

}  // namespace lockstep
