// The trainer: the same forward as the engine's, with a tape; gradients; AdamW; the next version of the weights.
// Bits depend on the data alone: not on its order, its split into micro-batches, packing, checkpointing, threads, ranks.
// With several ranks (TrainerOptions::ranks) each has a backend of its own (docs/ranks.md). A trainer holds the local ones alone; where
// others are elsewhere, their owners make the same calls.
// Knows no files, no text, no environment. One thread at a time.
//   Trainer trainer(runtime, images, {}); trainer.forward_backward(data, loss); trainer.optim_step(adam);
//   engine.set_weights(trainer.weights());
// A batch may come in pieces, in any order, and has the bits of the whole: begin_batch, add ..., finish_batch.
// An error in the middle of a call drops the gradients of the step (and the batch), and the trainer goes on as if the step had not
// begun; one in the middle of an optimizer step leaves weights that are of no step: from then on all but restore() is refused.
#pragma once
#include <memory>
#include <optional>

#include "parallel/ranks.h"
#include "train/open_batch.h"
#include "train/rank_trainer.h"

namespace lockstep {

class Trainer {
 public:
  // `runtime` is the first local rank's; the others get one like it, with as many threads. `ranks` null: threads of this process; else
  // options.ranks is their layout.
  Trainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, std::unique_ptr<Ranks> ranks = nullptr);
  ~Trainer();

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index = {});
  // forward_backward on sequences as they arrive. The loss's normaliser is known before; so is the number of rows, for an index
  // loss. No other gradient is taken until the batch is finished or dropped; score() is allowed.
  void begin_batch(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index = {});
  // `places`: of each sequence in the batch, 0 to plan.sequences - 1, each once. Errors invalid_argument leave the batch as it was.
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece);
  // Results by place. Error invalid_argument when sequences are missing: they may still be added.
  ForwardBackwardResult finish_batch();
  void drop_batch();
  // After an error, or to begin again: no gradient is there, as after an optim_step, and no batch is open.
  void abandon_gradients();
  // Whether the gradient of a batch that comes in one piece, or in several, would need accumulators now (TrainerOptions::mostly_one_call).
  bool needs_accumulators(bool one_piece) const { return parts_[0]->gradients().needs_bins(parts_[0]->one_backward(one_piece)); }
  // Forward only: log-probabilities of the targets through the training path.
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // The loss of a piece of `batch` (train/open_batch.h), which has forward_backward's bits; no gradient is taken, and one that is open
  // stays as it is.
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece);
  // Throws numeric (and changes nothing) when the gradient has a NaN or an infinity.
  OptimResult optim_step(const AdamParameters& adam);

  // The whole compute copy, on the caller's runtime.
  const std::shared_ptr<const WeightSet>& weights();
  std::int64_t step() const { return parts_[0]->state().steps(); }
  const TrainerOptions& options() const { return parts_[0]->options(); }
  WeightImages gradient_images();        // after forward_backward; packed
  WeightImages master_images();
  TrainerState state();
  // A parameter's part of it, so that whoever writes it down needs no room for all. One rank alone has it: error unsupported.
  std::vector<float> state_image(StatePart part, std::size_t parameter);
  bool has_state(StatePart part, std::size_t parameter) const { return parts_[0]->state().has(part, parameter); }
  void restore(const TrainerState& state);
  // XXH3-64 over the file-order fp32 values of all gradients / masters.
  std::uint64_t gradient_hash();
  std::uint64_t master_hash();

  const MemoryAccounts& memory(int local) const;  // of a local rank
  // What ranks have sent each other so far: calls and bytes, of all groups and ranks.
  CommunicatorCounters traffic() const;
  // What the kernels of all forwards so far counted of themselves, on all ranks.
  ForwardCounts work() const;

 private:
  // work(part) on every local rank's thread.
  template <class F>
  void each(const F& work) {
    ranks_->run([&](int local) { work(*parts_[static_cast<std::size_t>(local)]); });
  }
  // The same of what makes a result and row sums on each: the first one's are all there is.
  template <class F>
  std::pair<ForwardBackwardResult, RowSums> results(const F& work);
  // work(), which makes gradients: an error drops them on every rank.
  template <class F>
  void or_abandon(const F& work);
  void check_usable() const;
  void check_no_batch() const;
  // The data of a call that may have to be taken once more; null where none is.
  std::shared_ptr<const std::vector<TrainSequence>> held(const std::vector<TrainSequence>& data) const;
  template <class F>
  WeightImages images(const F& of);  // of the whole model, put together from of(RankTrainer&)
  Runtime& runtime_of(int local) const { return local > 0 ? *runtimes_[static_cast<std::size_t>(local - 1)] : runtime_; }

  Runtime& runtime_;
  std::unique_ptr<Ranks> ranks_;
  std::vector<std::unique_ptr<Runtime>> runtimes_;  // of local ranks 1 and up
  std::vector<std::unique_ptr<RankTrainer>> parts_;
  // A batch that comes in pieces. Its gradients are opened by the first of them.
  struct Batch {
    OpenBatch results;
    GradientCall call;
    bool begun = false;
  };
  std::optional<Batch> batch_;
  std::shared_ptr<const WeightSet> whole_weights_;  // where the ranks hold shares; of the newest version that was asked for
};

}  // namespace lockstep
