// Trains a model's layer of multi-token prediction (model/blocks/mtp_layer.h), with optimizer steps of its own. The model is only read: its hidden
// states, embedding and head get no gradient, and none of its numbers change.
//   MtpTrainer trainer(runtime, reader->mtp_masters(), {.depths = 5}, {.micro_batch = 8});
//   MtpResult result = trainer.forward_backward(model_weights, data); trainer.optim_step(adam); trainer.weights()
// Losses (MtpLoss), each divided by the sum of its weights:
// - ce: the mean over depths of the cross-entropy of each row's target k tokens ahead, with its weight; targets behind the text's end are left out
// - tv: 1 - the mean over j of the probability that the first j draft tokens of a row are accepted by rejection sampling
// (the product of the overlaps of the model's and each depth's distribution, train/draft_overlap.h);
// with the first target's weight; rows too close to the text's end are left out
// - both: their sum
// All depths share the layer, its selection and its keys, as drafts do (or, as MtpLayer::shares_keys says, the layer alone: each depth selects among and
// attends to its own entries); depth k gets the text's own tokens. Bits depend on the data alone, not on its
// order, micro-batches or threads. One rank. One thread at a time.
#pragma once
#include <memory>

#include "model/runtime.h"
#include "train/data.h"
#include "train/draft_overlap.h"
#include "train/gradients.h"
#include "train/optimizer_state.h"

namespace lockstep {

enum class MtpLoss { ce, tv, both };

struct MtpTraining {
  static constexpr std::int64_t kMostDepths = 8;
  std::int64_t depths = 5;     // 1 to kMostDepths
  bool train_indexer = false;  // by its loss, whose target is the mean over the depths that share its selection
  MtpLoss loss = MtpLoss::ce;
};

struct MtpResult {
  double loss = 0;                    // what is trained
  std::vector<double> of_depth;       // normalised cross-entropy of each; 0 where it is not trained
  double variation = 0;               // the loss tv; 0 where it is not trained
  std::vector<double> overlap;        // of each depth, the mean: the probability that its draft is accepted; 0 where tv is not trained
  std::vector<std::int64_t> targets;  // of each, how many rows have one
  double index_loss = 0;              // mean KL a row, 0 when not trained
};

class MtpTrainer {
 public:
  // `masters`: of the layer's manifest. Errors: invalid_argument where the model has no such layer, or depths are none of 1 to kMostDepths; unsupported
  // under a profile that trains no weights, or on several ranks.
  MtpTrainer(Runtime& runtime, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options);

  // The gradient of the batch, under these weights of the model. Errors: those of check_data; invalid_argument where a depth would turn beyond the
  // runtime's positions; numeric for a value that is not finite. After an error there is no gradient.
  MtpResult forward_backward(const WeightSet& model_weights, const std::vector<TrainSequence>& data);
  OptimResult optim_step(const AdamParameters& adam);

  const std::shared_ptr<const WeightSet>& weights() const { return weights_; }
  const MtpTraining& training() const { return training_; }
  std::int64_t step() const { return state_.steps(); }
  WeightImages master_images() { return state_.images(StatePart::master); }
  WeightImages gradient_images();  // after forward_backward
  TrainerState state();
  void restore(const TrainerState& state);

 private:
  struct Depth;
  struct Normalisers {
    double targets, chains;  // sums of weights
  };
  void run(const WeightSet& model_weights, const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, const Normalisers& normalisers,
           MtpResult& result);
  // Adds to `result` the cross-entropy of the layer's depth `ahead` + 1, and stores in `depth` its gradient with respect to the layer's normed
  // output, where the backward through the layer begins. `logits`: room for those of a chunk of rows.
  void add_cross_entropy(Context& of_model, Context& ctx, Depth& depth, std::int64_t ahead, const std::vector<TrainSequence>& data,
                         const std::vector<std::size_t>& part, double normaliser, const Buffer& logits, MtpResult& result);
  void add_variation(Context& of_model, Tape& tape, const std::vector<Depth>& depths, const View& hidden, const std::vector<DraftChain>& chains,
                     double normaliser, MtpResult& result);
  void publish();

  Runtime& runtime_;
  const MtpLayer& layer_;
  MtpTraining training_;
  TrainerOptions options_;
  RankRows rows_;
  Gradients gradients_;
  OptimizerState state_;
  std::vector<Buffer> router_loads_;
  std::shared_ptr<const WeightSet> weights_;
};

}  // namespace lockstep
