// Watches the replicas of a channel by their records in the store: which are at which stage, which have gone silent, whether the fleet is ready.
// Every reader of the store sees the same. Silence is measured by this process's clock from the moment it saw a record change, or by the record's own
// time at the first sight. One thread.
//   FleetWatch watch(store, "chat");   const FleetState state = watch.look();   if (state.is_ready(id, Quorum())) ...
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sync/channel.h"
#include "sync/replica_record.h"

namespace lockstep {

inline constexpr double kLostSeconds = 10;

// How many live replicas must have a snapshot: all of them, or at least `least`.
struct Quorum {
  std::int64_t least = 0;  // 0: all
};
// "all", or a number from 1. Error invalid_argument.
Quorum parse_quorum(const std::string& text);

struct FleetReplica {
  ReplicaRecord record;
  double silent_seconds = 0;
  bool lost() const { return silent_seconds >= kLostSeconds; }
};

struct FleetState {
  std::optional<Channel> channel;
  std::vector<FleetReplica> replicas;  // the slowest first, those that are lost last
  std::vector<const FleetReplica*> live() const;
  bool is_ready(const std::string& target, const Quorum& quorum) const;
  // Whether all live replicas have at least staged the snapshot of this sequence number of the channel.
  bool all_staged(std::uint64_t sequence) const;
};

class FleetWatch {
 public:
  FleetWatch(std::shared_ptr<const Store> store, std::string channel) : store_(std::move(store)), channel_(std::move(channel)) {}
  // Reads the channel and all records. Invalid records are ignored. Errors: those of the store.
  FleetState look();

 private:
  struct Seen {
    std::uint64_t beat = 0;
    std::int64_t milliseconds = 0;
    std::chrono::steady_clock::time_point changed;
  };
  std::shared_ptr<const Store> store_;
  std::string channel_;
  std::map<std::string, Seen> seen_;
};

std::int64_t unix_milliseconds();

}  // namespace lockstep
