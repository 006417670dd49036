// Ways through a chain with all of a mirror's skips: none has more than 2 log2(n) + 1 deltas, whatever these weigh; within that bytes decide.
#include "sync/snapshot_ways.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "base/error.h"

namespace lockstep {
namespace {

// Of the snapshot so deep in the chain; `back` above 0: of the skip to the one so many before it; kWhole: of its full copy.
constexpr std::uint64_t kWhole = 1'000'000;
std::string way_id(std::uint64_t depth, std::uint64_t back = 0) { return fmt::format("{:032x}{:032x}", depth, back); }

class SnapshotPaths : public testing::Test {
 protected:
  using Bytes = std::function<std::uint64_t(std::uint64_t back)>;
  // Snapshots 0 to `last`, the first of which is a full copy. `most_back`: of a skip.
  void make(std::uint64_t last, const Bytes& bytes, std::uint64_t most_back = 1 << 16) {
    ways_.clear();
    for (std::uint64_t depth = 0; depth <= last; ++depth) {
      SnapshotWays& of = ways_[way_id(depth)];
      of.depth = depth;
      of.ways.push_back({way_id(depth), depth > 0 ? way_id(depth - 1) : "", depth > 0 ? 1u : 0u, depth > 0 ? bytes(1) : kFullBytes});
      for (std::uint64_t back = 2; depth > 0 && depth % back == 0 && back <= most_back; back *= 2)
        of.ways.push_back({way_id(depth, back), way_id(depth - back), back, bytes(back)});
    }
  }
  SnapshotPath plan(std::uint64_t target, const std::string& have) const {
    return plan_path_by(
        [this](const std::string& id) {
          const auto found = ways_.find(id);
          return found == ways_.end() ? std::nullopt : std::optional(found->second);
        },
        way_id(target), have);
  }
  // The number of deltas of a way from `have` to `target`, which is one, and has the bytes that it says.
  std::uint64_t deltas(std::uint64_t target, std::uint64_t have) const {
    const SnapshotPath path = plan(target, way_id(have));
    std::string at = way_id(target);
    std::uint64_t bytes = 0;
    for (const std::string& id : path.ids) {
      const SnapshotWay* taken = nullptr;
      for (const SnapshotWay& way : ways_.at(at).ways)
        if (way.id == id) taken = &way;
      if (!taken) {
        ADD_FAILURE() << id << " is no way to " << at;
        return 0;
      }
      bytes += taken->bytes;
      at = taken->parent;
    }
    EXPECT_EQ(at, way_id(have)) << target;
    EXPECT_EQ(bytes, path.bytes);
    return path.ids.size();
  }
  static double bound(std::uint64_t behind) { return 2 * std::log2(static_cast<double>(behind)) + 1; }
  void expect_bounded(std::uint64_t target) const {
    for (std::uint64_t have = 0; have < target; ++have)
      ASSERT_LE(static_cast<double>(deltas(target, have)), bound(target - have)) << "from " << have << " to " << target;
  }

  static constexpr std::uint64_t kFullBytes = std::uint64_t{1} << 30;
  std::map<std::string, SnapshotWays> ways_;
};

TEST_F(SnapshotPaths, TheBoundIsTwiceTheLogarithm) {
  EXPECT_EQ(most_deltas(0), 0u);
  for (std::uint64_t n = 1; n < 5000; ++n) ASSERT_EQ(most_deltas(n), static_cast<std::uint64_t>(std::floor(bound(n) + 1e-9))) << n;
  EXPECT_EQ(most_deltas(std::uint64_t{1} << 40), 64u);  // of what has so many ways that none is looked at to the end
}

// Deltas of so many steps grow more slowly than the steps, by chance half as much again or twice: then the fewest bytes are in short ways by themselves.
TEST_F(SnapshotPaths, PlausibleSizesKeepTheBound) {
  std::mt19937_64 random(14);
  make(300, [&](std::uint64_t back) {
    return 1000 + static_cast<std::uint64_t>(4000 * std::sqrt(static_cast<double>(back)) * (1 + static_cast<double>(random() % 1000) / 1000));
  });
  for (std::uint64_t target = 1; target <= 100; ++target) expect_bounded(target);
  for (const std::uint64_t target : {191, 192, 255, 256, 257, 299, 300}) expect_bounded(target);
}

// Where long deltas are dearer than the short ones that make them up, the fewest bytes alone would take ever more of these.
TEST_F(SnapshotPaths, DearSkipsKeepTheBoundToo) {
  make(300, [](std::uint64_t back) { return back * back; });
  for (std::uint64_t target = 1; target <= 80; ++target) expect_bounded(target);
  for (const std::uint64_t target : {256, 299, 300}) expect_bounded(target);
  // Within the bound there are fewer bytes than on the way of the longest skips: 64 to 1 by 32, 16, 8, 4, 2 and 1.
  const SnapshotPath path = plan(64, way_id(1));
  EXPECT_LT(path.bytes, 32u * 32 + 16 * 16 + 8 * 8 + 4 * 4 + 2 * 2 + 1);
  EXPECT_GT(path.ids.size(), 6u);
}

TEST_F(SnapshotPaths, WithoutSkipsTheDeltasAreTakenAllTheSame) {
  make(
      40, [](std::uint64_t) { return 100; }, 1);
  ways_.at(way_id(40)).ways.push_back({way_id(40, kWhole), "", 0, kFullBytes});
  EXPECT_EQ(plan(40, way_id(10)).ids.size(), 30u);  // more than 2 log2(30) + 1, and far less than a full copy
  EXPECT_EQ(plan(40, "").ids, std::vector<std::string>{way_id(40, kWhole)});
  // A full copy that is cheaper than all deltas is taken by whoever has an older snapshot too.
  ways_.at(way_id(40)).ways.back().bytes = 500;
  EXPECT_EQ(plan(40, way_id(10)).ids, std::vector<std::string>{way_id(40, kWhole)});
  EXPECT_EQ(plan(40, way_id(10)).bytes, 500u);
}

TEST_F(SnapshotPaths, FromNothingAWayEndsInAFullCopy) {
  make(300, [](std::uint64_t back) { return 100 + back; });
  for (std::uint64_t target = 0; target <= 300; ++target) {
    const SnapshotPath path = plan(target, "");
    ASSERT_FALSE(path.ids.empty());
    EXPECT_EQ(path.ids.back(), way_id(0));
    EXPECT_LE(path.ids.size(), most_deltas(target) + 1);
    EXPECT_GE(path.bytes, kFullBytes);
  }
  EXPECT_TRUE(plan(7, way_id(7)).ids.empty());
  ways_.erase(way_id(7));
  EXPECT_TRUE(plan(7, way_id(3)).ids.empty());  // its parents are walked
}

}  // namespace
}  // namespace lockstep
