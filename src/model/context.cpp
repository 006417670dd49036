#include "model/context.h"

#include "base/error.h"
#include "model/segment_weights.h"

namespace lockstep {

Context::Context(Backend& backend, const Manifest& manifest, const Profile& profile, const WeightSet& weights, KvCache& cache, const Batch& batch,
                 const RopeTables& ropes, const ForwardOptions& options, Tape* tape, const Sharding* sharding)
    : backend_(backend),
      manifest_(manifest),
      profile_(profile),
      weights_(weights),
      cache_(cache),
      batch_(batch),
      ropes_(ropes),
      options_(options),
      tape_(tape),
      sharding_(sharding),
      flags_(backend.device().allocate_zero(DType::i32, batch.count(), 1, MemoryCategory::activations)),
      counters_(backend, options) {
  if (options_.observer) options_.observer->begin_forward(backend, batch);
}

Tensor Context::output_like(const Tensor& x, std::int64_t cols) {
  Tensor y{allocate(DType::f32, x.view().rows, cols)};
  if (x.tape_rows) y.tape_rows = std::make_shared<TapeRows>(TapeRows{x.tape_rows->source, {}});
  return y;
}

void Context::begin_segment(std::int64_t segment) {
  SegmentWeights* const weights = options_.segment_weights;
  if (!weights) return;
  weights->use(segment);
  if (tape_) tape_->record([weights, segment] { weights->leave(segment); });
}

void Context::refuse_weight(ParameterId id) const {
  fail(ErrorCode::internal, "'{}' is not whole on this rank: it is of segment {}, and another one is computed", manifest_.parameter(id).name,
       manifest_.parameter(id).segment);
}

void Context::observe(std::string_view name, const View& output, ParameterId parameter, int layer, const View& slot_of) const {
  if (!options_.observer) return;
  const std::string_view of = parameter < 0 ? std::string_view() : manifest_.parameter(parameter).name;
  options_.observer->operation({name, of, layer, output, slot_of});
}

}  // namespace lockstep
