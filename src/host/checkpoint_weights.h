// Weights of checkpoints and promoted models, for sampling. They are cached (host/weight_cache.h), and memory for each is claimed from the ledger
// before it is read. Not on the executor's thread, which does the reading, except functions that take an OnExecutor.
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
  SamplerWeights of_record(const std::string& owner, const CheckpointRecord& from);
  SamplerWeights of_record(const OnExecutor& on, const std::string& owner, const CheckpointRecord& from);
  // Of a checkpoint that is a snapshot and was just saved: whoever samples it next need not read the store. Of a model the newest alone is kept.
  void keep(const CheckpointRecord& saved, const SamplerWeights& weights);
  void keep(const OnExecutor& on, const CheckpointRecord& saved, const SamplerWeights& weights);
  SamplerWeights of_promoted(const PromotedModel& model);
  bool drop_oldest(const OnExecutor& on) { return cache_.drop_oldest(on); }
  void clear(const OnExecutor& on) { cache_.clear(on); }

 private:
  SamplerWeights read(const OnExecutor& on, const std::string& owner, const CheckpointRecord& from) const;

  TrainingCommons& commons_;
  Checkpoints& checkpoints_;
  CheckpointFiles& files_;
  MemoryRoom& memory_;
  WeightCache cache_;
};

}  // namespace lockstep
