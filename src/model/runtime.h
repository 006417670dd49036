// What engine and trainer share: a backend, a model, a profile and the constant tables on the device. One runtime a device;
// several engines and trainers may stand on it, used by one thread at a time.
//   Runtime runtime(backend_options, make_model(config), profile_by_name("cpu-bf16w"), max_positions);
#pragma once
#include <memory>

#include "model/sharding.h"

namespace lockstep {

struct Runtime {
  Backend backend;
  std::shared_ptr<const Model> model;
  const Profile& profile;
  std::int64_t max_positions;  // positions the rope table covers; sequences are at most this long
  Buffer rope_table;
  OperationObserver* observer = nullptr;  // of every forward, while it is set (model/observer.h)

  // `positions` 0: what the model's config allows, at most 65536 (a longer table costs memory: ask for it).
  Runtime(const BackendOptions& options, std::shared_ptr<const Model> m, const Profile& p, std::int64_t positions = 0);

  // One forward over rows of `batch`; hidden states after the final norm. Flags and losses are the context's. With a sharding the
  // weights and the cache are this rank's.
  Context context(const WeightSet& weights, KvCache& cache, const Batch& batch, ForwardOptions options = {}, Tape* tape = nullptr,
                  const Sharding* sharding = nullptr) {
    options.observer = observer;
    return Context(backend, sharding ? sharding->manifest() : model->manifest(), profile, weights, cache, batch,
                   {rope_table.view(), model->facts().rope.half}, options, tape, sharding);
  }
};

}  // namespace lockstep
