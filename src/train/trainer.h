// The trainer: runs the engine's forward with a tape, computes gradients, takes optimizer steps and publishes the next version of the weights.
//   Trainer trainer(runtime, images, {}); trainer.forward_backward(data, loss); trainer.optim_step(adam);
//   engine.set_weights(trainer.weights());
// Bits depend on the data alone: not on its order, its split into micro-batches, packing, checkpointing, threads, ranks.
// A batch may come in pieces, in any order, and has the bits of the whole: begin_batch, add ..., finish_batch.
// With several ranks (TrainerOptions::ranks) each has a backend of its own (docs/ranks.md). A trainer holds the local ones only; owners of
// the others make the same calls.
// An error in the middle of a call discards the gradients of the step (and the batch), and the trainer goes on as if the step had not
// begun. An error in the middle of an optimizer step leaves inconsistent weights: then everything but restore() is refused.
// Knows no files, no text, no environment. One thread at a time.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "parallel/ranks.h"
#include "train/open_batch.h"
#include "train/rank_trainer.h"

namespace lockstep {

class Trainer {
 public:
  // `runtime` is the first local rank's; the others get copies with as many threads. `ranks` null: threads of this process; else
  // options.ranks is their layout.
  Trainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, std::unique_ptr<Ranks> ranks = nullptr);
  ~Trainer();

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index = {});
  // forward_backward on sequences as they arrive. The loss's normaliser must be known first, and the number of rows for an index
  // loss. No other gradient may be computed until the batch is finished or discarded; score() is allowed.
  void begin_batch(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index = {});
  // `places`: the index of each sequence in the batch, 0 to plan.sequences - 1, each once. Errors invalid_argument leave the batch unchanged.
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece);
  // Results by index. Error invalid_argument when sequences are missing: they may still be added.
  ForwardBackwardResult finish_batch();
  void drop_batch();
  // Discards gradients and an open batch, after an error or to begin again. The state is as after an optim_step.
  void abandon_gradients();
  // Gradients that no step has taken, and may be in the middle of a batch, to disk and back: in a folder of its own, a file a rank, put there
  // whole. A trainer of the same weights that reads them goes on with the bits that this one would have had. Ranks are all here. Errors: io;
  // corrupt_file, and no gradient is there then; unsupported.
  bool has_gradients() const { return batch_ || parts_[0]->gradients().pending(); }
  void save_gradients(const std::filesystem::path& folder);
  void load_gradients(const std::filesystem::path& folder);
  // Whether the gradient of a batch in one piece, or in several, would need accumulators now (TrainerOptions::mostly_one_call).
  bool needs_accumulators(bool one_piece) const { return parts_[0]->gradients().needs_bins(parts_[0]->one_backward(one_piece)); }
  // A batch that comes in pieces. Its gradients are opened by the first of them.
  struct Batch {
    OpenBatch results;
    GradientCall call;
    bool begun = false;
  };
  bool in_batch() const { return batch_.has_value(); }
  // The batch that is open, without its gradients: the trainer that reads those takes it. The one that gives it is good for nothing more.
  std::optional<Batch> take_batch() { return std::exchange(batch_, std::nullopt); }
  void put_batch(std::optional<Batch>&& batch) { batch_ = std::move(batch); }
  // Forward only: log-probabilities of the targets through the training path.
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // The loss of a piece of `batch` (train/open_batch.h), with forward_backward's bits; computes no gradient and leaves an open one unchanged.
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece);
  // Throws numeric (and changes nothing) when the gradient has a NaN or an infinity.
  OptimResult optim_step(const AdamParameters& adam);

  // The whole compute copy, on the caller's runtime.
  const std::shared_ptr<const WeightSet>& weights();
  std::int64_t step() const { return parts_[0]->state().steps(); }
  const TrainerOptions& options() const { return parts_[0]->options(); }
  WeightImages gradient_images();  // after forward_backward; packed
  WeightImages master_images();
  TrainerState state();
  // One parameter's part of the state, so that a writer needs no memory for all. Single rank only: error unsupported.
  std::vector<float> state_image(StatePart part, std::size_t parameter);
  bool has_state(StatePart part, std::size_t parameter) const { return parts_[0]->state().has(part, parameter); }
  void restore(const TrainerState& state);
  // XXH3-64 over the file-order fp32 values of all gradients / masters.
  std::uint64_t gradient_hash();
  std::uint64_t master_hash();

  const MemoryAccounts& memory(int local) const;  // of a local rank
  // Traffic between ranks so far: calls and bytes, of all groups and ranks.
  CommunicatorCounters traffic() const;
  // The kernels' work counts of all forwards so far, on all ranks.
  ForwardCounts work() const;

 private:
  // work(part) on every local rank's thread.
  template <class F>
  void each(const F& work) {
    ranks_->run([&](int local) { work(*parts_[static_cast<std::size_t>(local)]); });
  }
  // The same for work that returns a result and row sums; all ranks return equal ones, so the first rank's are used.
  template <class F>
  std::pair<ForwardBackwardResult, RowSums> results(const F& work);
  // work() that computes gradients: an error discards them on every rank.
  template <class F>
  void or_abandon(const F& work);
  void check_usable() const;
  void check_no_batch() const;
  // The data of a call whose gradient may have to be recomputed; else null.
  std::shared_ptr<const std::vector<TrainSequence>> held(const std::vector<TrainSequence>& data) const;
  template <class F>
  WeightImages images(const F& of);  // of the whole model, assembled from of(RankTrainer&)
  Runtime& runtime_of(int local) const { return local > 0 ? *runtimes_[static_cast<std::size_t>(local - 1)] : runtime_; }

  Runtime& runtime_;
  std::unique_ptr<Ranks> ranks_;
  std::vector<std::unique_ptr<Runtime>> runtimes_;  // of local ranks 1 and up
  std::vector<std::unique_ptr<RankTrainer>> parts_;
  std::optional<Batch> batch_;
  std::shared_ptr<const WeightSet> whole_weights_;  // if the ranks hold shares: of the newest version requested
};

}  // namespace lockstep
