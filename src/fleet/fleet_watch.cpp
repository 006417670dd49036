#include "fleet/fleet_watch.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/error.h"
#include "base/seconds.h"

namespace lockstep {
namespace {
// Where a replica stands: an error is behind everything.
std::tuple<bool, std::uint64_t, int, std::string> place(const FleetReplica& replica) {
  const ReplicaRecord& r = replica.record;
  return {replica.lost(), r.current_sequence, r.stage == ReplicaStage::error ? -1 : static_cast<int>(r.stage), r.name};
}
}  // namespace

std::int64_t unix_milliseconds() { return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count(); }

Quorum parse_quorum(const std::string& text) {
  Quorum quorum;
  if (text == "all") return quorum;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), quorum.least);
  if (error != std::errc() || end != text.data() + text.size() || quorum.least < 1)
    fail(ErrorCode::invalid_argument, "quorum is '{}', allowed are all, or a whole number from 1", text.substr(0, 40));
  return quorum;
}

std::vector<const FleetReplica*> FleetState::live() const {
  std::vector<const FleetReplica*> live;
  for (const FleetReplica& one : replicas)
    if (!one.lost()) live.push_back(&one);
  return live;
}

bool FleetState::is_ready(const std::string& target, const Quorum& quorum) const {
  const auto all = live();
  const auto ready =
      std::count_if(all.begin(), all.end(), [&](const FleetReplica* one) { return one->record.stage == ReplicaStage::ready && one->record.current == target; });
  return quorum.least > 0 ? ready >= quorum.least : ready > 0 && ready == std::ssize(all);
}

bool FleetState::all_staged(std::uint64_t sequence) const {
  const auto all = live();
  return std::all_of(all.begin(), all.end(), [&](const FleetReplica* one) {
    const ReplicaRecord& r = one->record;
    if (r.current_sequence >= sequence) return true;
    return r.sequence == sequence && (r.stage == ReplicaStage::staged || r.stage == ReplicaStage::swapping || r.stage == ReplicaStage::ready);
  });
}

FleetState FleetWatch::look() {
  FleetState state;
  state.channel = read_channel_record(*store_, channel_);
  std::map<std::string, Seen> seen;
  for (const auto& [name, text] : read_replicas(*store_, channel_)) {
    FleetReplica replica;
    try {
      replica.record = parse_replica(text);
    } catch (const Error&) {
      continue;
    }
    replica.record.name = name;
    const ReplicaRecord& r = replica.record;
    const auto now = std::chrono::steady_clock::now();
    const auto before = seen_.find(name);
    Seen& one = seen[name];
    if (before == seen_.end()) {
      const auto ago = std::max<std::int64_t>(unix_milliseconds() - r.unix_milliseconds, 0);
      one = {r.beat, r.unix_milliseconds, now - std::chrono::milliseconds(std::min<std::int64_t>(ago, std::int64_t{1} << 40))};
    } else if (before->second.beat != r.beat || before->second.milliseconds != r.unix_milliseconds) {
      one = {r.beat, r.unix_milliseconds, now};
    } else {
      one = before->second;
    }
    replica.silent_seconds = seconds_since(one.changed);
    state.replicas.push_back(std::move(replica));
  }
  seen_ = std::move(seen);
  std::sort(state.replicas.begin(), state.replicas.end(), [](const FleetReplica& a, const FleetReplica& b) { return place(a) < place(b); });
  return state;
}

}  // namespace lockstep
