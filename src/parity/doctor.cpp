#include "parity/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {
using Level = Finding::Level;
constexpr double kGigabyte = 1e9;
constexpr std::int64_t kLeastMemory = std::int64_t{2} << 30, kLeastDisk = std::int64_t{2} << 30, kLeastFiles = 2048;

double gigabytes(std::int64_t bytes) { return static_cast<double>(bytes) / kGigabyte; }

bool has(const MachineFacts& facts, const char* feature) { return std::find(facts.features.begin(), facts.features.end(), feature) != facts.features.end(); }

Finding processor(const MachineFacts& f) {
  const std::string name = f.processor.empty() ? "unknown processor" : f.processor;
  for (const char* needed : {"avx2", "fma", "f16c"})
    if (!has(f, needed))
      return {Level::problem, "processor", fmt::format("{} has no {}", name, needed),
              "use an x86-64 processor with AVX2, FMA and F16C (Intel since 2013, AMD since 2015)"};
  const bool wide = has(f, "avx512f") && has(f, "avx512bw") && has(f, "avx512dq") && has(f, "avx512vl");
  return {Level::good, "processor", fmt::format("{}: {}; kernels run on {}", name, fmt::join(f.features, " "), wide ? "AVX-512" : "AVX2"), ""};
}

std::vector<Finding> cores(const MachineFacts& f) {
  std::vector<Finding> found;
  const std::string shown = fmt::format("{} usable of {} processors", f.usable_processors, f.processors);
  if (f.cores == 0) {
    found.push_back({Level::note, "cores", shown + "; which of them share a core is not told here", ""});
  } else if (f.cores < f.usable_processors) {
    found.push_back({Level::note, "cores", fmt::format("{} on {} real cores: siblings share a core's arithmetic", shown, f.cores),
                     fmt::format("try --threads {}: one a core may be as fast and leaves room", f.cores)});
  } else {
    found.push_back(
        {Level::good, "cores", fmt::format("{}, each a core of its own{}", shown, f.virtual_machine ? " as far as this virtual machine tells" : ""), ""});
  }
  if (f.processor_quota > 0 && f.processor_quota + 0.01 < static_cast<double>(f.usable_processors))
    found.push_back({Level::warning, "cores",
                     fmt::format("this container may use {:.1f} processors' time of {}: threads beyond that are stopped again and again", f.processor_quota,
                                 f.usable_processors),
                     fmt::format("--threads {}, or raise the container's cpu limit", std::max(1, static_cast<int>(f.processor_quota)))});
  if (f.node_processors.size() == 1 && f.nodes <= 1) {
    found.push_back({Level::good, "nodes", "1 NUMA node: threads go where the system puts them", ""});
  } else if (f.nodes > 1 && f.node_processors.size() <= 1) {
    found.push_back({Level::note, "nodes", fmt::format("{} NUMA nodes, usable processors on one or unknown: threads are not placed", f.nodes), ""});
  } else if (f.nodes > 1) {
    found.push_back({Level::note, "nodes",
                     fmt::format("{} NUMA nodes, {} usable processors on them: threads are kept on a node, filled in this order; memory is not "
                                 "placed, it lies where it was first written",
                                 f.nodes, fmt::join(f.node_processors, " + ")),
                     fmt::format("numactl --cpunodebind=0 --membind=0 lockstep --threads {} ... keeps all on one node", f.node_processors.front())});
  }
  if (!f.frequency_governor.empty() && f.frequency_governor == "powersave")
    found.push_back({Level::note, "cores", "the frequency governor is 'powersave'", "cpupower frequency-set -g performance"});
  return found;
}

Finding memory(const MachineFacts& f, double bandwidth) {
  std::int64_t available = f.memory_available_bytes;
  if (f.memory_limit_bytes > 0) available = std::min(available, f.memory_limit_bytes);
  std::string text = fmt::format("{:.1f} GB, {:.1f} available", gigabytes(f.memory_bytes), gigabytes(available));
  if (f.memory_limit_bytes > 0) text += fmt::format(" (the container's limit is {:.1f})", gigabytes(f.memory_limit_bytes));
  if (bandwidth > 0) text += fmt::format(", read at {:.1f} GB/s", bandwidth);
  if (available > 0 && available < kLeastMemory)
    return {Level::warning, "memory", text + ": building and the demo need about 2 GB", "close other programs, or add memory or swap"};
  return {Level::good, "memory", text, ""};
}

Finding limits(const MachineFacts& f) {
  const std::string text = fmt::format("{} open files allowed", f.open_files);
  if (f.open_files > 0 && f.open_files < kLeastFiles)
    return {Level::warning, "limits", text + fmt::format(": a server with more connections than that refuses them"),
            fmt::format("ulimit -n {}", std::max(kLeastFiles, std::min<std::int64_t>(f.open_files_hard, 65536)))};
  return {Level::good, "limits", text, ""};
}

Finding disk(std::int64_t free_bytes) {
  if (free_bytes < 0) return {Level::note, "disk", "how much is free here is not known", ""};
  const std::string text = fmt::format("{:.1f} GB free in this folder", gigabytes(free_bytes));
  if (free_bytes < kLeastDisk)
    return {Level::warning, "disk", text + ": a build and a run's checkpoints may not fit", "free some, or run from a folder on another disk"};
  return {Level::good, "disk", text, ""};
}

Finding bits(const std::vector<SelfTestRow>& rows) {
  for (const SelfTestRow& row : rows)
    if (!row.passed())
      return {Level::problem, "bits",
              fmt::format("profile {} with {} and {} thread(s) gives {}, published is {}", row.profile, row.isa, row.threads, row.hash, row.published),
              "rebuild with Debian's g++ 12 and no flags of your own (rm -rf build; ./setup); if it stays, report it with this output"};
  return {Level::good, "bits", fmt::format("sampling, gradients and a step give the published bits in {} ways", rows.size()), ""};
}
}  // namespace

std::string finding_level_name(Level level) {
  constexpr const char* kNames[] = {"good", "note", "warning", "problem"};
  return kNames[static_cast<int>(level)];
}

std::vector<Finding> judge(const MachineFacts& facts, double bandwidth, const std::vector<SelfTestRow>& self_test, std::int64_t free_bytes) {
  std::vector<Finding> found = {processor(facts)};
  for (Finding& finding : cores(facts)) found.push_back(std::move(finding));
  found.push_back(memory(facts, bandwidth));
  found.push_back(limits(facts));
  found.push_back(disk(free_bytes));
  if (!self_test.empty()) found.push_back(bits(self_test));
  return found;
}

}  // namespace lockstep
