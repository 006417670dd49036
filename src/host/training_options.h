// Settings of a training service: limits on memory and disk, and how long things are kept. Plain values.
#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

class FleetPort;
struct SamplerWeights;

// Now, by a clock that nobody sets.
using SteadyClock = std::function<std::chrono::steady_clock::time_point()>;

struct TrainingServiceOptions {
  std::filesystem::path state = "lockstep-state";
  std::int64_t max_sessions = 10'000, max_pending = 10'000;  // pending: operations of one model
  std::int64_t max_samplers = 100'000;
  // A session that was not heard from for so long goes, and so does a snapshot without a name that was not sampled (host/retention.h).
  double session_seconds = 30 * 86400.0, sampler_seconds = 3 * 86400.0;
  SteadyClock clock = &std::chrono::steady_clock::now;  // that says how long nothing was heard; a test's may be moved
  // An operation whose number is missing for so long counts as one that never comes: those behind it go on.
  double gap_seconds = 30;
  // A session that was closed, or not heard from for so long, leaves memory: its models go to disk, and come back when they are used.
  double session_idle_seconds = 30 * 60.0;
  std::int64_t gradient_bytes = 0;      // of gradients that no step has taken, which go to disk with their models; 0: a quarter of the disk
  std::int64_t max_models = 64;         // in memory; beyond, the least used go to disk and come back
  std::int64_t max_kept_models = 4096;  // on disk too
  // Numbers of operations whose request is known when they come again, and models that could not be made of which is known why: the newest.
  std::int64_t max_numbers = 100'000, max_unmade = 1000;
  std::int64_t max_checkpoints = 100'000;
  std::int64_t checkpoint_bytes = 0;       // of all their files, and of promoted models'; 0: half of the disk that `state` is on
  std::int64_t metadata_bytes = 16 << 10;  // of the user_metadata, and of the tags, of one session, model or checkpoint
  // Of each limit above but max_pending, and of the control plane's records, one owner may take so many percent: the rest is for others.
  std::int64_t key_share = 50;
  std::int64_t tokens_a_step = 2048;                   // of one model, before others get their turn
  double turn_seconds = 0.2;                           // while nobody waits a turn takes more, up to so long (host/turn_size.h); 0: never
  bool offload_optimizer = false;                      // the trainers' moments (and masters beside narrower weights) are in files below `state`
  bool share_passes = true;                            // turns that are not full take small batches of other adapters along; false: slower, the same bits
  std::int64_t sampler_bytes = std::int64_t{2} << 30;  // of snapshots in memory; more go to disk. As much again of sampled checkpoints
  std::int64_t reuse_bytes = std::int64_t{1} << 30;    // of forwards that a gradient may ask for again (train/kept_passes.h); 0: none
  bool custom_losses = true;                           // that clients trace run here
  // Told of an owner's tokens, of batches whose result was told. In a step of the executor.
  std::function<void(const std::string& owner, std::int64_t tokens)> count_tokens = {};
  // Replicas that follow this server; null: there are none. `publish` makes a sampler's checkpoint a snapshot of this name, which they can be pointed at,
  // and calls back when it is there (null), or with what went wrong. Any thread.
  std::shared_ptr<FleetPort> fleet = {};
  std::function<void(const std::string& name, const SamplerWeights& weights, std::function<void(std::exception_ptr)> done)> publish = {};
};

}  // namespace lockstep
