// The trainer: the same forward as the engine's, with a tape; gradients; AdamW; the next version of the weights.
// Bits depend on the data alone: not on its order, its split into micro-batches, packing, checkpointing, threads, ranks.
// With several ranks (TrainerOptions::ranks) each is a thread with a backend of its own beside the caller's (docs/ranks.md).
// Knows no files, no text, no environment. One thread at a time.
//   Trainer trainer(runtime, images, {}); trainer.forward_backward(data, loss); trainer.optim_step(adam);
//   engine.set_weights(trainer.weights());
#pragma once
#include <memory>

#include "train/rank_trainer.h"

namespace lockstep {

class Trainer {
 public:
  // `runtime` is rank 0's; the others get one like it, with as many threads.
  Trainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options);
  ~Trainer();

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index = {});
  // Forward only: log-probabilities of the targets through the training path.
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // Throws numeric (and changes nothing) when the gradient has a NaN or an infinity.
  OptimResult optim_step(const AdamParameters& adam);

  // The whole compute copy, on the caller's runtime.
  const std::shared_ptr<const WeightSet>& weights();
  std::int64_t step() const { return parts_[0]->step(); }
  const TrainerOptions& options() const { return parts_[0]->options(); }
  WeightImages gradient_images();        // after forward_backward; packed
  WeightImages master_images();
  TrainerState state();
  void restore(const TrainerState& state);
  // XXH3-64 over the file-order fp32 values of all gradients / masters.
  std::uint64_t gradient_hash();
  std::uint64_t master_hash();

  const MemoryAccounts& memory(int rank);
  // What ranks have sent each other so far: calls and bytes, of all groups and ranks.
  CommunicatorCounters traffic();

 private:
  // work(rank) on every rank's thread.
  void each(const std::function<void(int)>& work) { ranks_.run(work); }
  template <class F>
  WeightImages images(const F& of);  // of the whole model, put together from of(RankTrainer&)
  std::uint64_t hash_images(const WeightImages& images) const;

  Runtime& runtime_;
  ThreadRanks ranks_;
  std::vector<std::unique_ptr<Runtime>> runtimes_;  // of ranks 1 and up
  std::vector<std::unique_ptr<RankTrainer>> parts_;
  std::shared_ptr<const WeightSet> whole_weights_;  // where the ranks hold shares; of the newest version that was asked for
};

}  // namespace lockstep
