#include "base/processor_nodes.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <string>

namespace lockstep {

std::vector<int> usable_processors() {
  cpu_set_t set;
  std::vector<int> usable;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return usable;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) usable.push_back(cpu);
  return usable;
}

std::vector<int> parse_processor_list(const std::string& text) {
  constexpr int kLargest = 1 << 20;
  std::vector<int> list;
  const char *at = text.data(), *end = at + text.size();
  while (at != end) {
    int first = 0;
    auto read = std::from_chars(at, end, first);
    if (read.ec != std::errc()) return {};
    int last = first;
    if (read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc()) return {};
    }
    if (first < 0 || last < first || last > kLargest) return {};
    for (int cpu = first; cpu <= last; ++cpu) list.push_back(cpu);
    at = read.ptr;
    if (at != end && *at++ != ',') return {};
  }
  return list;
}

ProcessorNodes processor_nodes(const std::filesystem::path& root, const std::vector<int>& usable) {
  std::map<int, std::vector<int>> by_number;  // node10 comes after node9
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(root / "sys/devices/system/node", ignored)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    if (!name.starts_with("node")) continue;
    const auto read = std::from_chars(name.data() + 4, name.data() + name.size(), number);
    if (read.ec != std::errc() || read.ptr != name.data() + name.size()) continue;
    std::ifstream in(entry.path() / "cpulist");
    std::string line;
    std::getline(in, line);
    for (const int cpu : parse_processor_list(line))
      if (std::binary_search(usable.begin(), usable.end(), cpu)) by_number[number].push_back(cpu);
  }
  ProcessorNodes nodes;
  std::vector<int> all;
  for (auto& [number, processors] : by_number) {
    all.insert(all.end(), processors.begin(), processors.end());
    nodes.push_back(std::move(processors));
  }
  std::sort(all.begin(), all.end());
  return all == usable ? nodes : ProcessorNodes();
}

NodePlacement::NodePlacement(ProcessorNodes nodes) : nodes_(std::move(nodes)) {
  for (std::size_t node = 0; node < nodes_.size(); ++node) node_of_.insert(node_of_.end(), nodes_[node].size(), static_cast<int>(node));
  uses_.assign(node_of_.size(), 0);
}

std::vector<int> NodePlacement::take(int threads) {
  std::vector<int> places;
  if (!needed()) return places;
  std::lock_guard lock(mutex_);
  for (int i = 0; i < threads; ++i) {
    const auto least = std::min_element(uses_.begin(), uses_.end());
    ++*least;
    places.push_back(static_cast<int>(least - uses_.begin()));
  }
  return places;
}

void NodePlacement::give_back(const std::vector<int>& places) {
  std::lock_guard lock(mutex_);
  for (const int place : places) --uses_[static_cast<std::size_t>(place)];
}

const std::vector<int>& NodePlacement::processors_of(int place) const { return nodes_[static_cast<std::size_t>(node_of_[static_cast<std::size_t>(place)])]; }

namespace {
thread_local NodePlacement* scoped_placement = nullptr;
}

NodePlacement& current_placement() {
  static NodePlacement machine(processor_nodes("/", usable_processors()));
  return scoped_placement ? *scoped_placement : machine;
}

PlacementScope::PlacementScope(NodePlacement& placement) : before_(scoped_placement) { scoped_placement = &placement; }
PlacementScope::~PlacementScope() { scoped_placement = before_; }

void bind_this_thread(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : processors)
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace lockstep
