// The state of a trainer (train/trainer.h) put together from all ranks: fp32 masters, moments, number of steps. Writers of checkpoints and exports
// read it; Trainer::restore sets it. Images are packed (model/weights.h). Every function fails with unsupported after a step or a restore that failed
// in the middle. The trainer's thread.
//   WeightImages masters = trainer.state().masters(); TrainerState restart = trainer.state().all();
#pragma once
#include "train/rank_trainers.h"

namespace lockstep {

class WholeState {
 public:
  explicit WholeState(RankTrainers& ranks) : ranks_(ranks) {}

  WeightImages images(StatePart part) const {
    return ranks_.images([part](RankTrainer& rank) { return rank.state().images(part); });
  }
  WeightImages masters() const { return images(StatePart::master); }
  TrainerState all() const;
  // One parameter's, so that a writer needs no memory for all.
  std::vector<float> image(StatePart part, std::size_t parameter) const;
  bool has(StatePart part, std::size_t parameter) const { return ranks_.first().state().has(part, parameter); }
  // XXH3-64 over the file-order fp32 values of all masters.
  std::uint64_t master_hash() const;

 private:
  RankTrainers& ranks_;
};

}  // namespace lockstep
