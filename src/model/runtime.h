// What engine and trainer share: a backend, a model, a profile and constant tables on the device. One runtime per device;
// several engines and trainers may use it, one thread at a time.
//   Runtime runtime(backend_options, make_model(config), profile_by_name("cpu-bf16w"), max_positions);
#pragma once
#include <memory>

#include "model/sharding.h"

namespace lockstep {

struct Runtime {
  Backend backend;
  std::shared_ptr<const Model> model;
  const Profile& profile;
  std::int64_t max_positions;             // positions the rope table covers; sequences are at most this long
  Buffer rope_table, index_rope_table;    // the second only where indexers have their own
  OperationObserver* observer = nullptr;  // of every forward, while it is set (model/observer.h)

  // `positions` 0: the config's limit, at most 65536 (a longer table costs memory and must be asked for).
  Runtime(const BackendOptions& options, std::shared_ptr<const Model> m, const Profile& p, std::int64_t positions = 0);

  // One forward over rows of `batch`; hidden states after the final norm. Flags and losses are the context's. With a sharding the
  // weights and the cache are this rank's.
  Context context(const WeightSet& weights, KvCache& cache, const Batch& batch, ForwardOptions options = {}, Tape* tape = nullptr,
                  const Sharding* sharding = nullptr) {
    options.observer = observer;
    const ModelFacts& facts = model->facts();
    const RopeAngles attention{rope_table.view(), facts.rope.half};
    const RopeAngles indexer = facts.index_rope ? RopeAngles{index_rope_table.view(), facts.index_rope->half} : attention;
    return Context(backend, sharding ? sharding->manifest() : model->manifest(), profile, weights, cache, batch, {attention, indexer}, options, tape, sharding);
  }
};

}  // namespace lockstep
