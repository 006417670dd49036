#include "fleet/channel_fleet.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "sync/arc_folder.h"
#include "sync/channel.h"
#include "sync/snapshot.h"
#include "sync/snapshot_write.h"

namespace lockstep {
namespace {
constexpr std::chrono::seconds kWriterWait{40};
constexpr std::chrono::milliseconds kWriterPause{100};

// Of a server that lists no folders: none.
std::vector<std::string> channels_of(const Store& store) {
  try {
    return store.channels();
  } catch (const Error& e) {
    if (e.code() == ErrorCode::unsupported) return {};
    throw;
  }
}

// A damaged record is nobody's name, and keeps no other from being found.
std::optional<Channel> readable_channel(const Store& store, const std::string& name) {
  try {
    return read_channel_record(store, name);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::corrupt_file) return std::nullopt;
    throw;
  }
}
}  // namespace

ChannelPlace parse_channel_place(const std::string& option, const std::string& text) {
  const std::size_t slash = text.rfind('/');
  if (slash == std::string::npos || slash == 0 || !is_channel_name(text.substr(slash + 1)))
    fail(ErrorCode::invalid_argument, "{} is '{}', allowed is STORE/CHANNEL: a store's place, '/', and a name of 1 to 64 letters, digits, '-', '_' and '.'",
         option, text.substr(0, 200));
  return {text.substr(0, slash), text.substr(slash + 1)};
}

ChannelFleet::ChannelFleet(std::shared_ptr<Store> store, std::string channel, Quorum quorum, std::string transition, std::filesystem::path deliveries)
    : store_(std::move(store)),
      channel_(std::move(channel)),
      quorum_(quorum),
      transition_(std::move(transition)),
      deliveries_(std::move(deliveries)),
      watch_(store_, channel_) {}

FleetState ChannelFleet::look() {
  const std::lock_guard lock(mutex_);
  return watch_.look();
}

std::string ChannelFleet::identity_of(const std::string& snapshot) {
  if (snapshot.empty()) return {};
  const std::lock_guard lock(mutex_);
  if (const auto found = names_.find(snapshot); found != names_.end()) return found->second;
  for (const std::string& name : channels_of(*store_)) {
    if (name == channel_ || is_hold_name(name) || known_.contains(name)) continue;
    if (const auto record = readable_channel(*store_, name); record && record->sequence == 1) {
      names_.emplace(record->target, name);
      known_.insert(name);
    }
  }
  const auto found = names_.find(snapshot);
  return found != names_.end() ? found->second : snapshot;
}

std::vector<FleetMember> ChannelFleet::members() {
  FleetState state = look();
  const std::string target = state.channel ? state.channel->target : std::string();
  const auto has_it = [&](const FleetReplica& one) { return !one.lost() && one.record.stage == ReplicaStage::ready && one.record.current == target; };
  if (!target.empty() && state.is_ready(target, quorum_)) std::stable_partition(state.replicas.begin(), state.replicas.end(), has_it);
  std::vector<FleetMember> members;
  for (const FleetReplica& one : state.replicas) {
    const ReplicaRecord& r = one.record;
    FleetMember& member = members.emplace_back();
    member.name = r.name;
    member.url = r.url;
    member.stage = stage_name(r.stage);
    member.error = r.error;
    member.current = r.current;
    member.target = r.target;
    member.current_identity = identity_of(r.current);
    member.target_identity = identity_of(r.target);
    member.sequence = r.sequence;
    member.lost = one.lost();
    member.serves = !one.lost() && !r.current.empty();
    member.silent_seconds = one.silent_seconds;
    member.downloaded_bytes = r.downloaded_bytes;
    member.full_bytes = r.full_bytes;
    for (std::size_t i = 0; i < kReplicaStages; ++i) member.seconds.emplace_back(stage_name(static_cast<ReplicaStage>(i)), r.seconds[i]);
  }
  return members;
}

FleetSignal ChannelFleet::load(const std::string& identity, const std::string& wanted) {
  const std::string snapshot = find_snapshot(*store_, identity);
  const auto before = read_channel_record(*store_, channel_);
  const std::string transition = !wanted.empty() ? wanted : !transition_.empty() ? transition_ : before ? before->transition : "immediate";
  return {snapshot, move_channel(*store_, channel_, snapshot, transition).sequence};
}

bool ChannelFleet::has_delivery(const std::string& identity) {
  std::error_code error;
  if (deliveries_.empty() || identity == channel_ || !std::filesystem::is_directory(deliveries_ / identity, error)) return false;
  return !read_channel_record(*store_, identity);
}

void ChannelFleet::take_in(const FleetDelivery& delivery) {
  const std::string& identity = delivery.identity;
  if (!is_channel_name(identity))
    fail(ErrorCode::invalid_argument, "the snapshot's name is '{}', allowed are 1 to 64 letters, digits, '-', '_' and '.'", identity);
  const std::lock_guard one_at_a_time(delivery_mutex_);
  const std::filesystem::path folder = deliveries_ / identity;
  PushOptions options;
  if (is_arc_folder(folder)) {
    if (delivery.previous.empty())
      fail(ErrorCode::invalid_argument,
           "'{}' holds deltas, and nothing says what they were made against (incremental_snapshot_metadata); a snapshot of all "
           "weights heals this",
           identity);
    options.parent = with_context(fmt::format("'{}' holds deltas against '{}', which must be loaded before", identity, delivery.previous),
                                  [&] { return find_snapshot(*store_, delivery.previous); });
  }
  options.written = [&](const Written& now) { move_channel(*store_, identity, now.id, "immediate", ""); };
  const auto until = std::chrono::steady_clock::now() + kWriterWait;
  while (has_delivery(identity)) {
    try {
      push_folder(*store_, folder, options);
      return;
    } catch (const Error& e) {
      // Another replica may write the same at this time, or a trainer something else.
      const bool taken = e.code() == ErrorCode::already_exists || e.code() == ErrorCode::resource_exhausted;
      if (!taken || std::chrono::steady_clock::now() > until) throw;
    }
    std::this_thread::sleep_for(kWriterPause);
  }
}

FleetProgress ChannelFleet::progress(const FleetSignal& signal) {
  const FleetState state = look();
  FleetProgress progress;
  progress.ready = state.is_ready(signal.snapshot, quorum_);
  for (const FleetReplica* one : state.live())
    if (one->record.stage == ReplicaStage::error && one->record.sequence == signal.sequence && progress.error.empty())
      progress.error = fmt::format("replica {}: {}", one->record.name, one->record.error);
  progress.ended = state.live().empty() || progress.ready || !progress.error.empty() || (state.channel && state.channel->sequence > signal.sequence);
  return progress;
}

}  // namespace lockstep
