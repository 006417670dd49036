// A replica that follows a channel: pulls each snapshot the channel points at, stages it beside the live weights, swaps, and reports its stage in the
// store. A signal with a number it has seen changes nothing; after an error it tries again every second until the signal succeeds. With the
// transition `staged` it swaps when all live replicas have staged. A refusal by a gate is an error too, and is retried when the channel or the gate
// changes. One thread of its own; others may ask.
//   Follower follower(store, "chat", service, runtime, executor, weights, options);   follower.record().stage
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "fleet/fleet_watch.h"
#include "fleet/replica_reporter.h"
#include "fleet/weight_staging.h"
#include "observe/prometheus.h"
#include "serving/serving.h"
#include "serving/version_gate.h"

namespace lockstep {

struct FollowOptions {
  std::string replica;  // its name in the fleet, unique among those that follow the channel
  std::string url;      // where it serves, for whoever reads the records
  SwapMemory memory = SwapMemory::spare;
  InFlight in_flight = InFlight::go_on;
  std::function<std::string()> base_sha256;                                  // weights_sha256 of the model folder, for adapters
  std::function<std::string(const std::string& snapshot)> identity_of = {};  // what clients call it
  std::chrono::milliseconds poll{50};
  std::shared_ptr<VersionGate> gate = nullptr;       // what staged weights have to pass before they are live; null: nothing. With SwapMemory::spare alone
  std::shared_ptr<WeightPool::Part> part = nullptr;  // shares equal parameters with other models (model/weight_pool.h); null: nothing is shared
  std::filesystem::path downloads = {};              // where downloads from a remote store are kept (sync/downloads.h)
};

class Follower {
 public:
  // `weights`: those that the service samples with now. Two replicas with one name would overwrite each other's records.
  Follower(std::shared_ptr<Store> store, std::string channel, std::shared_ptr<GenerationService> service, std::shared_ptr<Runtime> runtime,
           std::shared_ptr<Executor> executor, std::shared_ptr<const WeightSet> weights, const FollowOptions& options);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  ReplicaRecord record() const { return reporter_.record(); }
  FleetState fleet() const;  // read anew. Errors: those of the store
  // Stops waiting for requests in flight and begins no further snapshot; one that is being applied is finished. Removes its record from the store, so
  // that nobody waits for it. Call it on the thread that destroys it.
  void stop();
  void append_metrics(PrometheusText& text) const;

 private:
  struct Totals {
    std::atomic<std::uint64_t> swaps{0}, errors{0}, downloaded_bytes{0}, full_bytes{0};
    std::atomic<double> swap_seconds{0}, ready_seconds{0};  // of the last one: the swap, and from its signal until ready
  };
  void work();
  void look();
  void take(const Channel& channel);
  std::string pass_gate(const StagedWeights& staged, const Channel& channel);
  void wait_for_others(const Channel& channel);
  void swap(StagedWeights& staged, const Channel& channel, std::chrono::steady_clock::time_point signalled);
  bool superseded(const Channel& channel) const;
  void failed(const Channel& channel, const std::string& message);
  void kept_out(const Channel& channel, const std::string& terms, const std::string& message);
  void healed();
  bool pause(std::chrono::milliseconds time);  // false: it is to stop

  const std::shared_ptr<Store> store_;
  const std::string channel_;
  const std::shared_ptr<GenerationService> service_;
  const std::shared_ptr<Runtime> runtime_;
  const FollowOptions options_;
  WeightStaging staging_;
  LiveWeights live_;  // the thread's
  std::string base_sha256_;
  std::uint64_t done_ = 0;    // number of the channel that is live
  std::uint64_t trying_ = 0;  // whose failure is reported
  std::string trying_message_;
  std::uint64_t refused_ = 0;  // number of the channel whose snapshot a gate refused; 0: none
  std::string refused_terms_, refused_message_;
  Totals totals_;
  mutable std::mutex watch_mutex_;
  mutable FleetWatch watch_;
  ReplicaReporter reporter_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  StopSource stop_gate_;
  std::thread thread_;
};

}  // namespace lockstep
