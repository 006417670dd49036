// Which processors lie on which NUMA node, and which node each thread of a pool belongs to. On a machine with one node there is
// nothing to decide and nothing is done. Knows no memory: that lies on the node whose thread first writes it. Changes no bit: a kernel
// gives each output element to one index, whichever thread takes it.
//   NodePlacement placement(processor_nodes("/", usable_processors())); const auto places = placement.take(8); ... placement.give_back(places);
#pragma once
#include <filesystem>
#include <mutex>
#include <vector>

namespace lockstep {

using ProcessorNodes = std::vector<std::vector<int>>;  // processors a node, both ascending

// The processors that the calling thread may run on (affinity, cpusets), ascending; empty when the system does not tell.
std::vector<int> usable_processors();

// The nodes of root/sys/devices/system/node, each with those of its processors that are in `usable`; nodes without any are left out.
// Empty when the nodes cannot be read or do not hold every usable processor: then nothing is known, and nothing is placed.
ProcessorNodes processor_nodes(const std::filesystem::path& root, const std::vector<int>& usable);

// "0-3,8,10-11" -> 0 1 2 3 8 10 11; empty when it is not such a list.
std::vector<int> parse_processor_list(const std::string& text);

// Hands out places, node by node: the first pool fills node 0 before node 1, the next one (another rank's) takes what is least in use.
// Any thread.
class NodePlacement {
 public:
  explicit NodePlacement(ProcessorNodes nodes);
  // Whether there is more than one node.
  bool needed() const { return nodes_.size() > 1; }
  // `threads` places, numbers into the list of all processors node by node; the least used, the first of equals. Empty unless needed().
  std::vector<int> take(int threads);
  void give_back(const std::vector<int>& places);
  // The processors of the place's node, to bind a thread to.
  const std::vector<int>& processors_of(int place) const;

 private:
  ProcessorNodes nodes_;
  std::vector<int> node_of_, uses_;  // a place
  std::mutex mutex_;
};

// What thread pools that this thread makes take their places from: this machine's nodes, as they were when first asked for, or what a
// PlacementScope says.
NodePlacement& current_placement();

// While it stands, pools made by this thread are placed on nodes that a test made up. The placement outlives those pools.
class PlacementScope {
 public:
  explicit PlacementScope(NodePlacement& placement);
  ~PlacementScope();
  PlacementScope(const PlacementScope&) = delete;

 private:
  NodePlacement* before_;
};

// Keeps the calling thread on these processors. What the system refuses stays as it was: a thread elsewhere is slower, not wrong.
void bind_this_thread(const std::vector<int>& processors);

}  // namespace lockstep
