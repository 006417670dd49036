// Trains a model's layer of multi-token prediction (model/blocks/mtp_layer.h), with optimizer steps of its own. The model is only read: its hidden
// states, embedding and head get no gradient, and none of its numbers change. Or, where its gradients are given (TrunkShare::gradients), the same losses
// reach it through hidden states, embedding, head and the distributions that drafts are held against, and its own trainer steps it.
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
// order, micro-batches, threads or ranks (train/mtp_rank.h). It holds the local ranks only; owners of the others make the same calls, and get the same
// results. One thread at a time.
#pragma once
#include "train/mtp_rank.h"
#include "train/newest_whole.h"
#include "train/rank_runtimes.h"

namespace lockstep {

class MtpTrainer {
 public:
  // `masters`: of the layer's manifest. `ranks`: of this runtime and of the layout options.ranks; null: its own. Errors: invalid_argument where the model
  // has no such layer, or depths are none of 1 to kMostDepths; unsupported under a profile that trains no weights.
  MtpTrainer(Runtime& runtime, const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options,
             std::shared_ptr<RankRuntimes> ranks = nullptr);

  // The gradient of the batch, under these weights of the model: the share of each local rank. Errors: those of check_data; invalid_argument where a depth
  // would turn beyond the runtime's positions; numeric for a value that is not finite; unsupported for a joint training with rows=dealt, over an
  // adapter, or of a tied head. After an error there is no gradient; gradients of the model that were given have any part of it.
  MtpResult forward_backward(const std::vector<TrunkShare>& trunk, const std::vector<TrainSequence>& data);
  MtpResult forward_backward(const WeightSet& model_weights, const std::vector<TrainSequence>& data) {  // one rank
    return forward_backward(std::vector<TrunkShare>{{&model_weights}}, data);
  }
  OptimResult optim_step(const AdamParameters& adam);

  // On the first rank's runtime. Of an owner without rank 0: null where that one has the layer and the owner's own first rank has none.
  std::shared_ptr<const WeightSet> weights();
  const MtpTraining& training() const { return training_; }
  std::int64_t step() const { return steps_; }
  WeightImages master_images() { return images(StatePart::master); }
  WeightImages gradient_images();  // after forward_backward
  TrainerState state();
  void restore(const TrainerState& state);

 private:
  MtpRank& part(int local) const { return *parts_[static_cast<std::size_t>(local)]; }
  // `own` of the rank that answers becomes `answer`, in every process; each local rank calls it on its thread.
  template <class T>
  void tell(int local, T&& own, T& answer) const;
  template <class F>
  WeightImages images_by(const F& of);
  WeightImages images(StatePart of);

  Runtime& runtime_;
  const MtpTraining training_;
  const TrainerOptions options_;
  std::shared_ptr<RankRuntimes> ranks_;
  std::vector<std::unique_ptr<MtpRank>> parts_;
  bool first_has_layer_ = true;   // rank 0, wherever it is
  std::int64_t steps_ = 0;        // of the layer
  NewestWhole<WeightSet> whole_;  // if rank 0 has no layer
};

}  // namespace lockstep
