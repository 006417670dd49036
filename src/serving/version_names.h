// Maps weights versions to the snapshots they came from, for answers that name the snapshot. Remembers more versions than requests in flight can
// have. Any thread.
//   names.add({7, id, "step-7"});   names.find(7).snapshot
#pragma once
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

namespace lockstep {

struct SnapshotVersion {
  std::uint64_t version = 0;  // WeightSet::version, or an adapter's
  std::string snapshot;       // its id (sync/manifest.h); empty: of none
  std::string identity;       // the name that clients of a hosted service gave it; empty: none
};

class VersionNames {
 public:
  static constexpr std::size_t kMost = 1024;
  void add(SnapshotVersion version) {
    const std::lock_guard lock(mutex_);
    names_.push_back(std::move(version));
    if (names_.size() > kMost) names_.pop_front();
  }
  // With an empty snapshot when the version is unknown.
  SnapshotVersion find(std::uint64_t version) const {
    const std::lock_guard lock(mutex_);
    for (auto one = names_.rbegin(); one != names_.rend(); ++one)
      if (one->version == version) return *one;
    return {version, {}, {}};
  }

 private:
  mutable std::mutex mutex_;
  std::deque<SnapshotVersion> names_;
};

}  // namespace lockstep
