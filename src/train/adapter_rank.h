// One rank's part of an adapter's trainer (train/adapter_trainer.h): its share of A and B, of their gradients, masters and moments. Ranks cut A and B as
// the weights under them are cut, and data-parallel ranks share the optimizer's state, as of whole weights.
//   AdapterRank part(base_rank, layout, masters, adamw(), options); part.gradients().open({}); ... part.optim_step(adam);
// Used by the rank's thread.
#pragma once
#include "train/base_rank.h"
#include "train/gradients.h"
#include "train/sampled_as.h"
#include "train/state_share.h"

namespace lockstep {

class AdapterRank {
 public:
  // `masters`: of the whole layout, which outlives this.
  AdapterRank(const BaseRank& base, const std::shared_ptr<const AdapterLayout>& layout, const WeightImages& masters, const OptimizerFamily& optimizer,
              const TrainerOptions& options);
  AdapterRank(const AdapterRank&) = delete;
  AdapterRank& operator=(const AdapterRank&) = delete;

  const std::shared_ptr<const AdapterWeights>& weights() const { return weights_; }  // this rank's share
  SampledAs& sampled_as() { return sampled_as_; }
  Gradients& gradients() { return gradients_; }
  const Gradients& gradients() const { return gradients_; }
  OptimizerState& state() { return state_; }
  const OptimizerState& state() const { return state_; }
  const Sharding* sharding() const { return sharding_.get(); }  // null: this rank has all of A and B
  int rank() const { return rows_.place().rank; }
  OptimResult optim_step(const AdamParameters& adam);
  WeightImages gradient_images();                             // of this rank's share; filled on data-parallel rank 0
  void restore(const StateReader& read, std::int64_t steps);  // of this rank's share
  StateShare share() { return {state_, rows_, sharding_.get()}; }

 private:
  OptimizerState first_state(const Manifest& model, const WeightImages& masters, const OptimizerFamily& optimizer, const TrainerOptions& options);
  void publish();

  Backend& backend_;
  std::shared_ptr<const AdapterLayout> whole_;
  std::unique_ptr<const Sharding> sharding_;
  std::shared_ptr<const AdapterLayout> layout_;  // of this rank's shares
  RankRows rows_;
  std::shared_ptr<const AdapterWeights> weights_;  // the masters themselves: adapters are fp32
  SampledAs sampled_as_;
  Gradients gradients_;
  OptimizerState state_;
};

}  // namespace lockstep
