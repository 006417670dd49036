// What engine and trainer share: a backend, a model, a profile and constant tables on the device. One runtime per device; several engines and
// trainers may use it, one thread at a time.
//   Runtime runtime(backend_options, make_model(config), profile_by_name("cpu-bf16w"), max_positions);
#pragma once
#include <memory>

#include "model/blocks/mtp_layer.h"
#include "model/rope_rows.h"
#include "model/sharding.h"

namespace lockstep {

struct Runtime {
  Backend backend;
  std::shared_ptr<const Model> model;
  const Profile& profile;
  std::int64_t max_positions;             // sequences are at most this long
  OperationObserver* observer = nullptr;  // of every forward, while it is set (model/observer.h)

  // `positions` 0: the config's limit, at most 65536 (a longer table costs memory and must be asked for).
  Runtime(const BackendOptions& options, std::shared_ptr<const Model> m, const Profile& p, std::int64_t positions = 0);

  // One forward over rows of `batch`; hidden states after the final norm. Flags and losses are the context's. With a sharding the
  // weights and the cache are this rank's.
  Context context(const WeightSet& weights, KvCache& cache, const Batch& batch, ForwardOptions options = {}, Tape* tape = nullptr,
                  const Sharding* sharding = nullptr) {
    options.observer = observer;
    return Context(backend, sharding ? sharding->manifest() : model->manifest(), profile, weights, cache, batch, ropes(batch, 0), options, tape, sharding);
  }
  // The same for the model's layer of multi-token prediction, with that layer's weights and cache (mtp_cache_shapes): no observer sees it. `ahead`:
  // by how many positions RoPE turns further than the rows' own.
  Context mtp_context(const WeightSet& weights, KvCache& cache, const Batch& batch, std::int64_t ahead, ForwardOptions options = {}, Tape* tape = nullptr) {
    options.observer = nullptr;
    options.first_key = MtpLayer::kFirstKey;
    return Context(backend, model->mtp()->manifest(), profile, weights, cache, batch, ropes(batch, ahead), options, tape);
  }
  // A context of the model's weights for work beside a forward (embeddings of other tokens, logits of other states): no observer sees it, and it uses
  // no cache.
  Context quiet_context(const WeightSet& weights, KvCache& any, const Batch& batch) {
    return Context(backend, model->manifest(), profile, weights, any, batch, ropes(batch, 0), {}, nullptr);
  }
  std::vector<CacheShape> mtp_cache_shapes() const { return {model->mtp()->cache_shape(profile)}; }

 private:
  RopeTables ropes(const Batch& batch, std::int64_t ahead) {
    const ModelFacts& facts = model->facts();
    const auto from = [&](RopeRows& rows) {
      const View table = rows.up_to(batch.longest() + ahead);
      return table ? table.row_range(ahead, table.rows - ahead) : table;
    };
    const RopeAngles attention{from(rope_rows_), facts.rope.half};
    return {attention, facts.index_rope ? RopeAngles{from(index_rope_rows_), facts.index_rope->half} : attention};
  }

  RopeRows rope_rows_, index_rope_rows_;  // the second only where indexers have their own
};

}  // namespace lockstep
