#include "base/processor_nodes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "base/thread_pool.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;
using Ints = std::vector<int>;

// A made-up /sys with these nodes, gone with the object.
struct NodeTree {
  fs::path root;
  explicit NodeTree(const std::vector<std::pair<const char*, const char*>>& nodes) {
    std::string name = (fs::temp_directory_path() / "lockstep-nodes-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    root = name;
    for (const auto& [node, processors] : nodes) {
      const fs::path folder = root / "sys/devices/system/node" / node;
      fs::create_directories(folder);
      std::ofstream(folder / "cpulist") << processors << "\n";
    }
  }
  ~NodeTree() { fs::remove_all(root); }
};

TEST(ProcessorNodes, AListIsReadOrRefused) {
  EXPECT_EQ(parse_processor_list("0-3,8,10-11"), (Ints{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_processor_list("5"), (Ints{5}));
  for (const char* wrong : {"", "a", "3-1", "1-", "-2", "1;2", "0-99999999", "99999999999"}) EXPECT_EQ(parse_processor_list(wrong), Ints{}) << wrong;
}

TEST(ProcessorNodes, AreReadInTheirOrderAndWithinTheCpuset) {
  const NodeTree tree({{"node10", "6-7"}, {"node0", "0-2"}, {"node2", "3-5"}, {"has_cpu", "0"}, {"nodex", "0-7"}});
  EXPECT_EQ(processor_nodes(tree.root, {0, 1, 2, 3, 4, 5, 6, 7}), (ProcessorNodes{{0, 1, 2}, {3, 4, 5}, {6, 7}}));
  EXPECT_EQ(processor_nodes(tree.root, {1, 2, 6}), (ProcessorNodes{{1, 2}, {6}}));
  EXPECT_EQ(processor_nodes(tree.root, {3, 4}), (ProcessorNodes{{3, 4}}));
  EXPECT_EQ(processor_nodes(tree.root, {0, 8}), ProcessorNodes{}) << "a processor of no node: nothing is known";
  EXPECT_EQ(processor_nodes("/no/such/folder", {0}), ProcessorNodes{});
}

TEST(NodePlacement, FillsNodeAfterNodeAndGivesTheNextPoolTheOthers) {
  NodePlacement placement({{0, 1}, {4, 5}});
  ASSERT_TRUE(placement.needed());
  const Ints first = placement.take(2), second = placement.take(2), third = placement.take(3);
  for (const int place : first) EXPECT_EQ(placement.processors_of(place), (Ints{0, 1}));
  for (const int place : second) EXPECT_EQ(placement.processors_of(place), (Ints{4, 5}));
  EXPECT_EQ(placement.processors_of(third[2]), (Ints{4, 5})) << "more threads than processors";
  placement.give_back(first);
  placement.give_back(third);
  EXPECT_EQ(placement.take(2), first) << "what was given back is taken first";
}

TEST(NodePlacement, OneNodeOrNoneIsNotPlaced) {
  for (const ProcessorNodes& nodes : {ProcessorNodes{}, ProcessorNodes{{0, 1, 2}}}) {
    NodePlacement placement(nodes);
    EXPECT_FALSE(placement.needed());
    EXPECT_EQ(placement.take(4), Ints{});
  }
}

// Processors that are here, dealt to two made-up nodes: the workers are where they belong, the caller is left alone.
TEST(NodePlacement, WorkersOfAPoolStayOnTheirNode) {
  const Ints here = usable_processors();
  if (here.size() < 2) GTEST_SKIP() << "one processor has no two nodes";
  NodePlacement placement({{here[0]}, {here[1]}});
  {
    const PlacementScope scope(placement);
    ThreadPool pool(2);
    std::vector<Ints> seen(2);
    std::atomic<int> arrived{0};
    pool.run(2, [&](std::int64_t i) {
      seen[static_cast<std::size_t>(i)] = usable_processors();
      ++arrived;
      while (arrived < 2) std::this_thread::yield();  // one index each
    });
    std::sort(seen.begin(), seen.end(), [](const Ints& a, const Ints& b) { return a.size() < b.size(); });
    EXPECT_EQ(seen[0], Ints{here[1]});
    EXPECT_EQ(seen[1], here);
    EXPECT_EQ(usable_processors(), here);
    EXPECT_EQ(placement.take(1), Ints{0}) << "both places are in use once, so the first comes again";
  }
  EXPECT_EQ(placement.take(1), Ints{1}) << "the pool gave its places back; the one taken above is not";
}

}  // namespace
}  // namespace lockstep
