#include "train/adapter_rank.h"

#include "train/gradient_norm.h"
#include "train/kept_forward.h"

namespace lockstep {

namespace {
// Every matrix of an adapter is trained and decays; for group norms it counts as what it adapts.
std::vector<TrainedParameter> adapted_parameters(const Manifest& model, const AdapterLayout& layout, const Sharding* sharding) {
  std::vector<TrainedParameter> all(layout.manifest().parameters().size());
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const AdapterLayout::Place& place = layout.place(static_cast<ParameterId>(i));
    for (const ParameterId id : {place.a, place.b}) {
      if (id < 0) continue;
      all[static_cast<std::size_t>(id)].group = gradient_group(model.parameters()[i]);
      all[static_cast<std::size_t>(id)].counts = !sharding || sharding->answers_for(id);
    }
  }
  return all;
}

// An adapter is small: no rank keeps rows of it alone.
RankPlace whole_on_replicas(RankPlace place) {
  place.layout.shard = RankShard::state;
  return place;
}
}  // namespace

AdapterRank::AdapterRank(const BaseRank& base, const std::shared_ptr<const AdapterLayout>& layout, const WeightImages& masters,
                         const OptimizerFamily& optimizer, const TrainerOptions& options)
    : backend_(base.runtime().backend),
      whole_(layout),
      sharding_(base.sharding() ? std::make_unique<const Sharding>(*layout, *base.sharding()) : nullptr),
      layout_(sharding_ ? std::make_shared<const AdapterLayout>(*layout, sharding_->manifest()) : layout),
      rows_(backend_, layout_->manifest(), whole_on_replicas(base.place()), nullptr, optimizer.whole_matrices),
      sampled_as_(kept_over_ranks(options, base.place().layout, backend_), base.place().rank),
      gradients_(backend_, rows_, {.accumulate = options.accumulate, .always_bins = true, .kept = base.place().layout.size() == 1 ? options.kept : nullptr}),
      state_(first_state(base.runtime().model->manifest(), masters, optimizer, options)) {
  publish();
}

OptimizerState AdapterRank::first_state(const Manifest& model, const WeightImages& masters, const OptimizerFamily& optimizer, const TrainerOptions& options) {
  const auto with = [&](const WeightImages& share) {
    return OptimizerState(backend_, rows_, nullptr, adapted_parameters(model, *layout_, sharding_.get()), share, optimizer, options);
  };
  return sharding_ ? with(shares_of(*sharding_, masters)) : with(masters);
}

void AdapterRank::publish() {
  auto next = std::make_shared<AdapterWeights>();
  next->layout = layout_;
  next->version = static_cast<std::uint64_t>(state_.steps());
  next->parameters = state_.weights();
  weights_ = std::move(next);
  sampled_as_.set(rows_.place().layout.size() == 1 ? weights_->identity : 0);
}

OptimResult AdapterRank::optim_step(const AdamParameters& adam) {
  const OptimResult result = state_.step(gradients_.take(), adam, [&] { publish(); });
  gradients_.drop();
  return result;
}

WeightImages AdapterRank::gradient_images() { return gradients_.images(); }

void AdapterRank::restore(const StateReader& read, std::int64_t steps) {
  gradients_.abandon();
  state_.restore(read, steps, [&] { publish(); });
}

}  // namespace lockstep
