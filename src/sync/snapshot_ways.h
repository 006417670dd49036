// Shortcuts to a snapshot that a mirror made, so that a follower far behind applies few deltas. A snapshot's record `ways` has its place in the
// chain, and the snapshots with the same content and another parent. These are hints: every result is checked with the snapshot's own digests.
//   const SnapshotPath path = plan_path(store, target, have);   SnapshotChain chain(store, target, local, path.ids);
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sync/store.h"

namespace lockstep {

struct SnapshotWay {
  std::string id, parent;   // parent empty: it needs none
  std::uint64_t back = 0;   // how many snapshots the parent is behind; 0: there is none
  std::uint64_t bytes = 0;  // to be fetched: manifest and payloads
};

struct SnapshotWays {
  std::uint64_t depth = 0;        // snapshots before it in its chain
  std::vector<SnapshotWay> ways;  // its own first
};

// Canonical JSON: {"depth":2,"ways":[{"back":1,"bytes":900,"id":"<id>","parent":"<id>"}]}.
std::string ways_text(const SnapshotWays& ways);
// Error corrupt_file for anything that ways_text does not write.
SnapshotWays parse_ways(std::string_view text);
// Nothing when nobody made any. A damaged record counts as none: it is a hint.
std::optional<SnapshotWays> read_ways(const Store& store, const std::string& id);
void put_ways(Store& store, const std::string& id, const SnapshotWays& ways);

struct SnapshotPath {
  std::vector<std::string> ids;  // newest first: each has the content of a snapshot of the chain, and the parent that comes next
  std::uint64_t bytes = 0;
};
// The most deltas that a way should have from a snapshot so many behind: 2 log2(n) + 1, rounded down; a mirror that leaves none out has such a way.
std::uint64_t most_deltas(std::uint64_t behind);
// A way to `target` from `have` (empty: from nothing) or from a full copy: of those with at most most_deltas() deltas the one with the fewest bytes; where
// none from `have` is so short, the one with the fewest bytes of all. Empty when there are no ways to the target: its parents are walked then.
SnapshotPath plan_path(const Store& store, const std::string& target, const std::string& have);
// The same of ways that stand elsewhere.
using WaysReader = std::function<std::optional<SnapshotWays>(const std::string& id)>;
SnapshotPath plan_path_by(const WaysReader& read, const std::string& target, const std::string& have);

}  // namespace lockstep
