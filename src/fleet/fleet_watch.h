// The replicas of a channel as their records in the store tell: who is where, who fell silent, whether the fleet is ready. Any replica, or anybody else
// who reads the store, sees the same.
//   FleetWatch watch(store, "chat");   const FleetState state = watch.look();   if (state.is_ready(id, Quorum())) ...
// Silence is measured by this process's clock, from the moment that it saw a record change; of one that it sees for the first time, by the record's.
// One thread.
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

// How many live replicas must have a snapshot: all of them, or at least so many.
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
  // Whether all live replicas stand at least at `staged` on the way to this number of the channel.
  bool all_staged(std::uint64_t sequence) const;
};

class FleetWatch {
 public:
  FleetWatch(std::shared_ptr<const Store> store, std::string channel) : store_(std::move(store)), channel_(std::move(channel)) {}
  // Errors: those of the store. A record that is none is passed over.
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
