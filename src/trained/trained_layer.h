// A layer of multi-token prediction that is trained beside a model (train/mtp_trainer.h), and reads it, or moves it too: the same calls in one process and over
// several, where the others repeat them (trained/led_model.h). The model outlives it. The thread of the model.
//   auto layer = model->make_layer(masters, {.depths = 5}, options);
//   layer->forward_backward(data, false); layer->optim_step(adam); layer->weights();
#pragma once
#include <functional>

#include "train/mtp_trainer.h"
#include "trained/trained_model.h"

namespace lockstep {

class TrainedLayer {
 public:
  virtual ~TrainedLayer() = default;
  // Under the model's weights as they are now. `joint`: between the model's forward_backward and its step, of which the gradient gets the layer's part; after
  // an error neither has a gradient. Errors: those of MtpTrainer::forward_backward; unsupported where the model takes no gradients beside its own.
  virtual MtpResult forward_backward(const std::vector<TrainSequence>& data, bool joint) = 0;
  virtual OptimResult optim_step(const AdamParameters& adam) = 0;
  virtual std::shared_ptr<const WeightSet> weights() = 0;  // on the base's runtime
  virtual WeightImages master_images() = 0;
  virtual TrainerState state() = 0;
  virtual void restore(const TrainerState& state) = 0;
  virtual const MtpTraining& training() const = 0;
};

// What a local rank has of the model, on its own runtime (rank_runtimes).
struct RankWeights {
  std::shared_ptr<const WeightSet> weights;
  std::shared_ptr<const AdapterWeights> adapter = nullptr;  // over them; null: none
  std::function<GradientSet*()> more_gradients = {};        // RankTrainer's, between forward_backward and the step; empty: an adapter
};
// The model as its layer sees it.
struct LayerTrunk {
  std::function<RankWeights(int local)> now;
  std::function<void()> drop;  // TrainedModel::drop, after an error of a joint gradient
};
// This process's part of it: over threads, or its ranks of all processes. Errors: those of MtpTrainer.
std::unique_ptr<TrainedLayer> make_layer_here(const TrainedBase& base, LayerTrunk trunk, const WeightImages& masters, const MtpTraining& training,
                                              const TrainerOptions& options);

}  // namespace lockstep
