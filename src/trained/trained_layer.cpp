#include "trained/trained_layer.h"

#include <utility>

#include "base/error.h"

namespace lockstep {

namespace {

class LayerHere final : public TrainedLayer {
 public:
  LayerHere(const TrainedBase& base, LayerTrunk trunk, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options)
      : trunk_(std::move(trunk)), ranks_(rank_runtimes(base)), trainer_(*base.opened.runtime, masters, training, options, ranks_) {}

  MtpResult forward_backward(const std::vector<TrainSequence>& data, bool joint) override {
    std::vector<RankWeights> now;
    std::vector<TrunkShare> trunk;
    for (int local = 0; local < ranks_->ranks().local(); ++local) {
      now.push_back(trunk_.now(local));
      trunk.push_back({now.back().weights.get(), now.back().adapter.get()});
    }
    if (!joint) return trainer_.forward_backward(trunk, data);
    for (std::size_t local = 0; local < now.size(); ++local) {
      trunk[local].gradients = now[local].more_gradients ? now[local].more_gradients() : nullptr;
      if (!trunk[local].gradients) fail(ErrorCode::unsupported, "mtp-joint is on, and the model's trainer takes no gradients beside its own; allowed is off");
    }
    try {
      return trainer_.forward_backward(trunk, data);
    } catch (...) {
      trunk_.drop();
      throw;
    }
  }
  OptimResult optim_step(const AdamParameters& adam) override { return trainer_.optim_step(adam); }
  std::shared_ptr<const WeightSet> weights() override { return trainer_.weights(); }
  WeightImages master_images() override { return trainer_.master_images(); }
  TrainerState state() override { return trainer_.state(); }
  void restore(const TrainerState& state) override { trainer_.restore(state); }
  const MtpTraining& training() const override { return trainer_.training(); }

 private:
  const LayerTrunk trunk_;
  const std::shared_ptr<RankRuntimes> ranks_;
  MtpTrainer trainer_;
};

}  // namespace

std::unique_ptr<TrainedLayer> make_layer_here(const TrainedBase& base, LayerTrunk trunk, const WeightImages& masters, const MtpTraining& training,
                                              const TrainerOptions& options) {
  return std::make_unique<LayerHere>(base, std::move(trunk), masters, training, options);
}

}  // namespace lockstep
