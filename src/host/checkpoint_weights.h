// Weights of checkpoints and promoted models to sample from: in a cache while there is room (host/weight_cache.h), each read in room that the memory
// ledger grants. Another thread than the executor's, which reads for it, but where a function takes its proof.
//   request.weights = weights.of_checkpoint(owner, "tinker://s1:train:0/sampler_weights/step-3").weights;
#pragma once
#include "host/checkpoint_files.h"
#include "host/promoted_models.h"
#include "host/weight_cache.h"

namespace lockstep {

class CheckpointWeights {
 public:
  CheckpointWeights(TrainingCommons& commons, Checkpoints& checkpoints, CheckpointFiles& files, MemoryRoom& memory);
  // Errors: those of Checkpoints::find and CheckpointFiles::weights; resource_exhausted; cancelled when the executor has stopped.
  SamplerWeights of_checkpoint(const std::string& owner, const std::string& path);
  SamplerWeights of_promoted(const PromotedModel& model);
  bool drop_oldest(const OnExecutor& on) { return cache_.drop_oldest(on); }
  void clear(const OnExecutor& on) { cache_.clear(on); }

 private:
  TrainingCommons& commons_;
  Checkpoints& checkpoints_;
  CheckpointFiles& files_;
  MemoryRoom& memory_;
  WeightCache cache_;
};

}  // namespace lockstep
