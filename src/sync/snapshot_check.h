// Maintenance of a store: verify its contents, compare snapshots, delete what no channel needs.
//   const auto faults = verify_snapshot(*store, id, {});   const PruneReport report = prune_store(*store, {}, true);
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sync/snapshot_pull.h"

namespace lockstep {

struct VerifyReport {
  std::int64_t snapshots = 0, objects = 0, tensors = 0;
  std::uint64_t bytes = 0;          // of objects
  std::vector<std::string> faults;  // one sentence each, which names what is wrong, both digests, and what heals it
};
// Reads a snapshot and all its parents: every object's SHA-256, every file, every tensor's digest along the chain.
VerifyReport verify_snapshot(const Store& store, const std::string& id, const PullOptions& options);

struct TensorDifference {
  std::string name, before, after;          // digests; empty: there is no such tensor
  std::int64_t elements = 0, changed = -1;  // changed: -1 when types or shapes differ
  std::uint64_t largest_step = 0;           // in ulps of the type
};
// Tensors that two snapshots do not have alike, by name.
std::vector<TensorDifference> diff_snapshots(const Store& store, const std::string& before, const std::string& after, const PullOptions& options);

struct PruneReport {
  std::vector<std::string> snapshots, objects;  // removed, or to be removed
  std::uint64_t bytes = 0;
  std::int64_t kept = 0;  // snapshots
};
// Removes what no channel and none of `keep` needs, parents included. Error invalid_argument when nothing would be kept.
PruneReport prune_store(Store& store, const std::vector<std::string>& keep, bool only_say);

}  // namespace lockstep
