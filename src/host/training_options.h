// Settings of a training service: limits on memory and disk, and how long things are kept. Plain values.
//   TrainingServiceOptions options; options.state = "state"; options.max_models = 8;
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

class FleetPort;
class SnapshotPort;

// The time of a monotonic clock.
using SteadyClock = std::function<std::chrono::steady_clock::time_point()>;

struct TrainingServiceOptions {
  std::filesystem::path state = "lockstep-state";
  std::int64_t max_sessions = 10'000, max_pending = 10'000;  // pending: operations of one model
  std::int64_t max_samplers = 100'000;
  // Sessions that were silent for that long, and unnamed snapshots that were not sampled, are removed (host/retention.h).
  double session_seconds = 30 * 86400.0, sampler_seconds = 3 * 86400.0;
  SteadyClock clock = &std::chrono::steady_clock::now;  // for these times; tests replace it
  // A sequence number that is missing for that long is skipped.
  double gap_seconds = 30;
  // Models of closed sessions, or of those silent for that long, are moved to disk, and read back when used.
  double session_idle_seconds = 30 * 60.0;
  std::int64_t gradient_bytes = 0;      // for gradients that no step has used, moved to disk with their models; 0: a quarter of the disk
  std::int64_t max_models = 64;         // in memory; beyond, the least recently used are moved to disk
  std::int64_t max_kept_models = 4096;  // in memory and on disk
  // How many repeated numbers are recognised, and how many failed creations are remembered: the newest.
  std::int64_t max_numbers = 100'000, max_unmade = 1000;
  std::int64_t max_checkpoints = 100'000;
  std::int64_t checkpoint_bytes = 0;       // of all their files, and of promoted models'; 0: half of the disk that `state` is on
  std::int64_t metadata_bytes = 16 << 10;  // of the user_metadata, and of the tags, of one session, model or checkpoint
  // One owner's share of each limit above but max_pending, and of the control plane's records, in percent.
  std::int64_t key_share = 50;
  std::int64_t tokens_a_step = 2048;                   // of one model, before others get their turn
  double turn_seconds = 0.2;                           // a turn may grow to that long while no other model waits (host/turn_size.h); 0: never
  bool offload_optimizer = false;                      // the trainers' moments (and masters beside narrower weights) are in files below `state`
  bool share_passes = true;                            // turns with room left include small batches of other adapters; false: slower, the same bits
  std::int64_t sampler_bytes = std::int64_t{2} << 30;  // of snapshots in memory, the rest on disk; as much again for sampled checkpoints
  std::int64_t reuse_bytes = std::int64_t{1} << 30;    // of kept forwards (train/kept_passes.h); 0: none
  bool custom_losses = true;                           // allow losses that clients trace
  // Called with an owner's tokens when a batch is done. In a step of the executor.
  std::function<void(const std::string& owner, std::int64_t tokens)> count_tokens = {};
  // Replicas that follow this server; null: there are none. `snapshots`: where samplers' checkpoints are kept, for replicas to be pointed at; null: as files
  // below `state`.
  std::shared_ptr<FleetPort> fleet = {};
  std::shared_ptr<SnapshotPort> snapshots = {};
};

}  // namespace lockstep
