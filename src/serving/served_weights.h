// The weights that a generation service uses for requests without weights of their own, and the snapshot they came from. Any thread, except where a
// function says otherwise.
//   service.weights().set(weights); service.weights().version(); service.weights().snapshot();
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/guarded.h"
#include "engine/options.h"
#include "serving/service_turns.h"
#include "serving/version_names.h"

namespace lockstep {

class Engine;
struct AdapterWeights;
struct WeightSet;

class ServedWeights {
 public:
  // `version`: of the weights that the engine was made with. Commands for the engine go through `turns`.
  ServedWeights(Engine& engine, ServiceTurns& turns, std::uint64_t version) : engine_(&engine), turns_(turns), version_(version) {}

  // Sets the weights for all steps that begin after this call, and an adapter over them (null: none) for later requests without weights and adapter of
  // their own. `layer`: of multi-token prediction, where the engine has one (Engine::set_weights); null: as it is.
  void set(std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter = nullptr, std::shared_ptr<const WeightSet> layer = nullptr);
  // Runs `make` between two steps of the engine; later steps use its result. Requests in flight go on as `in_flight` says (with an adapter: on the one they
  // began with). Returns when that is done. If `make` throws, nothing is changed and the exception passes on. Not from the executor's thread, which it waits
  // for.
  struct Swapped {
    std::shared_ptr<const WeightSet> weights;
    std::shared_ptr<const AdapterWeights> adapter = nullptr;
    std::shared_ptr<const WeightSet> layer = nullptr;
  };
  void swap(std::function<Swapped(const OnExecutor& on)> make, const SnapshotVersion& version, InFlight in_flight);
  std::uint64_t version() const { return version_; }

  // Names the snapshot (sync/manifest.h) of the weights that the service was made with. Before the first request.
  void name(const std::string& snapshot) { names_.add({version_.load(), snapshot, snapshot}); }
  SnapshotVersion named(std::uint64_t version) const { return names_.find(version); }
  std::string snapshot() const { return named(version_).snapshot; }  // empty: from none

  // The adapter over the weights; null: none.
  std::shared_ptr<const AdapterWeights> adapter() const {
    const auto adapter = adapter_.lock();
    return *adapter;
  }

 private:
  void use(const OnExecutor& on, const Swapped& now, InFlight in_flight);

  OfExecutor<Engine*> engine_;
  ServiceTurns& turns_;
  Guarded<std::shared_ptr<const AdapterWeights>> adapter_;
  VersionNames names_;
  std::atomic<std::uint64_t> version_;
};

}  // namespace lockstep
