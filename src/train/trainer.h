// The trainer: runs the engine's forward with a tape, computes gradients, takes optimizer steps and publishes the next version of the weights.
//   Trainer trainer(runtime, images, {}); trainer.forward_backward(data, loss); trainer.optim_step(adam);
//   engine.set_weights(trainer.weights()); const WeightImages masters = trainer.state().masters();
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

#include "train/newest_whole.h"
#include "train/open_batch.h"
#include "train/whole_state.h"

namespace lockstep {

class Trainer {
 public:
  // As RankTrainers.
  Trainer(Runtime& runtime, const WeightImages& masters, const TrainerOptions& options, std::shared_ptr<RankRuntimes> ranks = nullptr);

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index = {});
  // forward_backward on sequences as they arrive. The loss's normaliser must be known first, and the number of rows for an index
  // loss. No other gradient may be computed until the batch is finished or discarded; score() is allowed.
  void begin_batch(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index = {});
  // `places`: the index of each sequence in the batch, 0 to plan.sequences - 1, each once. Errors invalid_argument leave the batch unchanged.
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece);
  // Results by index. Error invalid_argument when sequences are missing: they may still be added.
  ForwardBackwardResult finish_batch();
  // Discards gradients and an open batch, after an error or to begin again. The state is as after an optim_step.
  void abandon_gradients();
  // Writes the gradients that no step has taken, perhaps in the middle of a batch, to `folder` (one file a rank, put in place when complete), and
  // reads them back. A trainer of the same weights that reads them goes on with the bits that this one would have had. An open batch is handed over
  // in memory; a trainer that gave one away must not be used again. All ranks are local. Errors: io; corrupt_file, after which there is no gradient;
  // unsupported.
  struct Batch {
    OpenBatch results;
    GradientCall call;
    bool begun = false;  // its gradients are opened by its first piece
  };
  bool has_gradients() const { return batch_ || ranks_.first().gradients().pending(); }
  bool in_batch() const { return batch_.has_value(); }
  std::optional<Batch> save_gradients(const std::filesystem::path& folder);
  void load_gradients(const std::filesystem::path& folder, std::optional<Batch>&& batch = std::nullopt);
  // Whether the gradient of a batch in one piece, or in several, would need accumulators now (TrainerOptions::mostly_one_call).
  bool needs_accumulators(bool one_piece) const { return ranks_.first().gradients().needs_bins(ranks_.first().one_backward(one_piece)); }
  // Forward only: log-probabilities of the targets through the training path.
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // The loss of a piece of `batch` (train/open_batch.h), with forward_backward's bits; computes no gradient and leaves an open one unchanged.
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece);
  // Throws numeric (and changes nothing) when the gradient has a NaN or an infinity.
  OptimResult optim_step(const AdamParameters& adam);

  // The whole compute copy, on the caller's runtime. Ranks that hold shares make it, and do not keep it: it is there as long as a caller has it.
  std::shared_ptr<const WeightSet> weights();
  std::int64_t step() const { return ranks_.first().state().steps(); }
  const WholeState& state() const { return state_; }
  void restore(const TrainerState& state);
  // The same from what `reader` makes for each local rank on its thread: each rank reads its own share of a state of `steps` steps, and nothing travels.
  void restore(const std::function<StateReader(StateShare&)>& reader, std::int64_t steps);
  // work(share) on every local rank's thread.
  void each_share(const std::function<void(StateShare&)>& work);
  WeightImages gradient_images();  // after forward_backward; packed
  const TrainerOptions& options() const { return ranks_.first().options(); }
  const RankTrainers& ranks() const { return ranks_; }

 private:
  // work() that computes gradients: an error discards them on every rank.
  template <class F>
  void or_abandon(const F& work);
  void check_no_batch() const;
  // The data of a call whose gradient may have to be recomputed; else null.
  std::shared_ptr<const std::vector<TrainSequence>> held(const std::vector<TrainSequence>& data) const;

  RankTrainers ranks_;
  WholeState state_;
  std::optional<Batch> batch_;
  NewestWhole<WeightSet> whole_;  // if the ranks hold shares
};

}  // namespace lockstep
