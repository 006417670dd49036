// What MtpRank reads of the model: hidden states and embeddings, which ranks make together, and, where the model is trained jointly, on a tape.
#include "model/sharding.h"
#include "parallel/transfer.h"
#include "train/mtp_joint.h"

namespace lockstep {

Context MtpRank::trunk_context(const TrunkShare& trunk, const Batch& batch, Tape* tape) {
  return Context(runtime_.backend, sharding_ ? sharding_->manifest() : runtime_.model->manifest(), runtime_.profile, *trunk.weights, no_cache_, batch, {}, {},
                 tape, sharding_.get());
}

Tensor MtpRank::embedded(const TrunkShare& trunk, const std::vector<SequenceSlice>& slices, Joint* joint, Tape* of_layer) {
  Joint::Forward forward;
  forward.batch = std::make_unique<const Batch>(runtime_.backend, slices, options_.page_size, joint != nullptr);
  const Batch& batch = *forward.batch;
  Tensor mine;
  if (!sharding_ || sharding_->first_stage()) {
    forward.context = std::unique_ptr<Context>(new Context(trunk_context(trunk, batch, joint ? joint->tape() : nullptr)));
    mine = runtime_.model->embed(*forward.context);
  }
  Tensor all = mine;
  if (sharding_ && sharding_->stages() > 1) {
    all = {};
    if (layer_)
      all = of_rows(batch, runtime_.backend.device().allocate(DType::f32, batch.count(), runtime_.model->facts().hidden, MemoryCategory::activations));
    send_between(*place_.stages, runtime_.backend.stream(), 0, sharding_->stages() - 1, sharding_->first_stage() ? mine.view() : View{},
                 layer_ ? all.view() : View{});
  }
  if (!joint) return all;
  joint->keep(std::move(forward));
  return joint->input(of_layer, all, mine.node);
}

Tensor MtpRank::trunk_states(const TrunkShare& trunk, const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part,
                             const std::vector<SequenceSlice>& slices, std::int64_t pages, Joint* joint) {
  Backend& backend = runtime_.backend;
  const Model& model = *runtime_.model;
  if (sharding_ && place_.stage() >= sharding_->stages()) return {};  // it has no segments
  std::vector<SequenceSlice> routed = slices;
  for (std::size_t i = 0; i < part.size(); ++i) routed[i].experts = data[part[i]].experts;
  Joint::Forward forward;
  forward.batch = std::make_unique<const Batch>(backend, routed, options_.page_size, joint != nullptr);
  forward.cache = std::make_unique<KvCache>(backend, sharding_ ? sharding_->cache_shapes(model, runtime_.profile) : model.cache_shapes(runtime_.profile),
                                            runtime_.profile, pages, options_.page_size);
  const Batch& batch = *forward.batch;
  const std::vector<AdapterRows> adapters{{trunk.adapter, nullptr, 0, batch.count(), 0, batch.count()}};
  ForwardOptions options;
  options.counts = false;
  if (trunk.adapter) options.adapters = &adapters;
  if (sharding_ && !sharding_->first_stage()) {
    forward.stage = std::make_unique<StageInput>();
    forward.stage->rows = backend.device().allocate(DType::f32, batch.count(), model.facts().hidden, MemoryCategory::activations);
    swap_over(*place_.before, backend.stream(), {}, forward.stage->rows.view());
    options.stage = forward.stage.get();
  }
  options.checkpoint = joint && options_.checkpoint_activations;
  if (options.checkpoint) options.row_tile = options_.row_tile;
  forward.context =
      std::unique_ptr<Context>(new Context(runtime_.context(*trunk.weights, *forward.cache, batch, options, joint ? joint->tape() : nullptr, sharding_.get())));
  Tensor hidden = model.forward(*forward.context);
  if (joint) joint->keep_segments(std::move(forward), hidden);
  if (layer_) return hidden;
  swap_over(*place_.after, backend.stream(), hidden.view(), {});
  return {};
}

}  // namespace lockstep
