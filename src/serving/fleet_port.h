// The replicas that serve one model together, as clients of a hosted service see them: which weights each has, and how all of them load others.
// Implemented over a store's channel (fleet/channel_fleet.h); nothing here knows a store. Any thread.
//   const FleetSignal signal = fleet->load("step-3", {}); while (!fleet->progress(signal).ended) wait();
//   for (const FleetMember& one : fleet->members()) show(one);
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct FleetMember {
  std::string name, url, stage, error;
  std::string current, target;                    // ids of snapshots; empty: none
  std::string current_identity, target_identity;  // by the names that loads used, else the id
  std::uint64_t sequence = 0;                     // of the signal that it follows or has reached
  bool serves = false;                            // it is alive and has weights of a snapshot
  bool lost = false;
  double silent_seconds = 0;
  std::uint64_t downloaded_bytes = 0, full_bytes = 0;
  std::vector<std::pair<std::string, double>> seconds;  // in each stage, on the way to the target
};

// A snapshot that another trainer left as files of its own: all weights, or deltas against a snapshot that the fleet's store has.
struct FleetDelivery {
  std::string identity;
  std::string previous;  // what deltas were made against; empty: nothing is said
  std::string snapshot;  // the id of the snapshot, which the store has already; empty: not known
};

struct FleetSignal {
  std::string snapshot;  // its id
  std::uint64_t sequence = 0;
};

struct FleetProgress {
  bool ready = false;  // enough replicas have it
  bool ended = false;  // ready, or a replica failed, or another load came since, or no replica is alive
  std::string error;   // of the first replica that failed, with its name
};

class FleetPort {
 public:
  virtual ~FleetPort() = default;
  // The slowest first, silent ones last; once the quorum has the target, those that have it first.
  virtual std::vector<FleetMember> members() = 0;
  // Makes all replicas load a snapshot, by name or id; no effect if it is the current target. `transition`: "immediate", "staged" (all switch
  // together), or empty: the default. Errors: not_found; those of the store.
  virtual FleetSignal load(const std::string& identity, const std::string& transition) = 0;
  // Whether files of that name wait to be taken in before `identity` can be loaded; and taking them in, which may last: then the store has the snapshot
  // under its name. Errors of take_in: invalid_argument, not_found (no `previous`), corrupt_file (damaged, or made against other weights), unsupported, io.
  virtual bool has_delivery(const std::string& identity) = 0;
  virtual void take_in(const FleetDelivery& delivery) = 0;
  virtual FleetProgress progress(const FleetSignal& signal) = 0;
  virtual std::string describe() const = 0;  // "STORE/CHANNEL", for messages
};

}  // namespace lockstep
