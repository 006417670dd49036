// The record by which a replica that follows a channel reports itself in a store: its stage on the way to the target, and the seconds of each stage.
// It is rewritten at every change and once a second, so that a dead replica is noticed. Knows no clock and no fleet.
//   put_replica(store, "chat", "a-8000", replica_text(record));   for (const auto& [name, text] : read_replicas(store, "chat")) parse_replica(text);
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sync/store.h"

namespace lockstep {

inline constexpr std::size_t kMostReplicaBytes = 16 << 10;
inline constexpr std::size_t kMostReplicas = 4096;  // of a channel

// In the order in which a replica passes through them, except for `error`.
enum class ReplicaStage : std::uint8_t { waiting, downloading, verifying, applying, staged, swapping, ready, error };
inline constexpr std::size_t kReplicaStages = 8;
std::string_view stage_name(ReplicaStage stage);
std::optional<ReplicaStage> stage_named(std::string_view name);

struct ReplicaRecord {
  std::string name, url, model;
  ReplicaStage stage = ReplicaStage::waiting;
  std::string current, target;                         // ids; empty: none
  std::uint64_t current_sequence = 0, sequence = 0;    // of the channel: with the current and with the target snapshot
  std::uint64_t full_bytes = 0, downloaded_bytes = 0;  // of the target's tensors; of payloads that were read for it
  std::uint64_t changed_tensors = 0;
  std::array<double, kReplicaStages> seconds{};  // in each stage, on the way to the target
  std::string error;                             // of the stage `error`
  std::uint64_t beat = 0;                        // grows with each record that is written
  std::int64_t unix_milliseconds = 0;            // of the replica's clock
};

std::string replica_text(const ReplicaRecord& record);
// Error corrupt_file.
ReplicaRecord parse_replica(std::string_view text);

// Each replica has a record of the kind "replicas" in the store, named "CHANNEL~NAME", which only that replica writes. NAME must be valid as a
// channel's name. Errors: those of the store; invalid_argument for another name; resource_exhausted for more than kMostReplicas.
std::vector<std::pair<std::string, std::string>> read_replicas(const Store& store, const std::string& channel);  // name and text, sorted
void put_replica(Store& store, const std::string& channel, const std::string& name, const std::string& text);
void remove_replica(Store& store, const std::string& channel, const std::string& name);

}  // namespace lockstep
