#include "model/context.h"

namespace lockstep {

Context::Context(Backend& backend, const Manifest& manifest, const Profile& profile, const WeightSet& weights, KvCache& cache, const Batch& batch,
                 const RopeTables& ropes, const ForwardOptions& options, Tape* tape, const Sharding* sharding)
    : backend_(backend),
      manifest_(manifest),
      profile_(profile),
      weights_(weights),
      cache_(cache),
      batch_(&batch),
      ropes_(ropes),
      options_(options),
      tape_(tape),
      sharding_(sharding),
      flags_(backend.device().allocate_zero(DType::i32, batch.count(), 1, MemoryCategory::activations)),
      flag_rows_(flags_.view()),
      counters_(backend, options) {
  if (options_.observer) options_.observer->begin_forward(backend, batch);
}

Tensor Context::output_like(const Tensor& x, std::int64_t cols) {
  Tensor y{allocate(DType::f32, x.view().rows, cols)};
  if (x.tape_rows) y.tape_rows = std::make_shared<TapeRows>(TapeRows{x.tape_rows->source, {}});
  return y;
}

void Context::observe(std::string_view name, const View& output, ParameterId parameter, int layer, const View& slot_of) const {
  if (!options_.observer) return;
  const std::string_view of = parameter < 0 ? std::string_view() : manifest_.parameter(parameter).name;
  options_.observer->operation({name, of, layer, output, slot_of});
}

}  // namespace lockstep
