// NUMA: which processors lie on which node, and which node each thread of a pool is bound to.
//   NodePlacement placement(processor_nodes("/", usable_processors())); const auto places = placement.take(8); ... placement.give_back(places);
// With one node nothing is done. Memory is not placed: it lies on the node whose thread first writes it. Placement changes no bit, since a
// kernel gives each output element to one index, whichever thread runs it.
#pragma once
#include <filesystem>
#include <mutex>
#include <vector>

namespace lockstep {

using ProcessorNodes = std::vector<std::vector<int>>;  // the processors of each node, both ascending

// The processors that the calling thread may run on (affinity, cpusets), ascending; empty when the system does not tell.
std::vector<int> usable_processors();

// The nodes of root/sys/devices/system/node, each with those of its processors that are in `usable`; nodes without any are left out.
// Empty when the nodes cannot be read or do not hold every usable processor: threads are then not placed.
ProcessorNodes processor_nodes(const std::filesystem::path& root, const std::vector<int>& usable);

// "0-3,8,10-11" -> 0 1 2 3 8 10 11; empty when it is not such a list.
std::vector<int> parse_processor_list(const std::string& text);

// Assigns processor places to pools, node by node: the first pool fills node 0 before node 1, the next (another rank's) takes the least used.
// Any thread.
class NodePlacement {
 public:
  explicit NodePlacement(ProcessorNodes nodes);
  // Whether there is more than one node.
  bool needed() const { return nodes_.size() > 1; }
  // `threads` places, indices into the list of all processors node by node; the least used, the first of equals. Empty unless needed().
  std::vector<int> take(int threads);
  void give_back(const std::vector<int>& places);
  // The processors of the place's node, to bind a thread to.
  const std::vector<int>& processors_of(int place) const;

 private:
  ProcessorNodes nodes_;
  std::vector<int> node_of_, uses_;  // a place
  std::mutex mutex_;
};

// The placement for thread pools created by this thread: this machine's nodes, read once, or those of a PlacementScope.
NodePlacement& current_placement();

// While it lives, pools created by this thread are placed on a test's made-up nodes. The placement must outlive those pools.
class PlacementScope {
 public:
  explicit PlacementScope(NodePlacement& placement);
  ~PlacementScope();
  PlacementScope(const PlacementScope&) = delete;

 private:
  NodePlacement* before_;
};

// Binds the calling thread to these processors. A refusal is ignored: a thread elsewhere is slower, not wrong.
void bind_this_thread(const std::vector<int>& processors);

}  // namespace lockstep
