// Trains adapters (model/adapter.h) over frozen weights: many trainers on one base, each with its own masters, moments and steps.
//   auto base = std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{});
//   AdapterTrainer one(base, layout, initial_adapter(*layout, 1)); one.forward_backward(data, loss); one.optim_step(adam);
//   request.adapter = one.weights();
// The calls are Trainer's. Bits depend on the data and the adapter alone: not on other adapters that are trained or share a
// forward. Knows no files. One thread at a time for a base and all its trainers.
#pragma once
#include "train/forward_pass.h"
#include "train/gradients.h"
#include "train/open_batch.h"
#include "train/optimizer_state.h"

namespace lockstep {

// Frozen weights, and what forwards over them need.
class FrozenBase {
 public:
  // Errors: unsupported for ranks or a trained indexer (TrainerOptions), which adapters do not have. With an optimizer_folder each adapter's
  // moments are in a file of its own there.
  FrozenBase(Runtime& runtime, std::shared_ptr<const WeightSet> weights, const TrainerOptions& options);
  Runtime& runtime() { return runtime_; }
  const std::shared_ptr<const WeightSet>& weights() const { return weights_; }
  const TrainerOptions& options() const { return options_; }
  ForwardPass& pass() { return pass_; }
  // Log-probabilities of the targets without any adapter: those of the reference policy.
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // The loss of a piece of `batch` (train/open_batch.h), without any adapter and without a gradient.
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece);

 private:
  Runtime& runtime_;
  std::shared_ptr<const WeightSet> weights_;
  TrainerOptions options_;
  ForwardPass pass_;
};

class AdapterTrainer {
 public:
  // `masters` by ParameterId of the layout's manifest. To an optimizer A and B are hidden matrices, whatever they adapt.
  AdapterTrainer(std::shared_ptr<FrozenBase> base, std::shared_ptr<const AdapterLayout> layout, const WeightImages& masters,
                 const OptimizerFamily& optimizer = adamw());
  AdapterTrainer(const AdapterTrainer&) = delete;
  AdapterTrainer& operator=(const AdapterTrainer&) = delete;

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss);
  // forward_backward for several trainers of one base in shared forwards; each has the bits of a separate call. A trainer appears once.
  struct Job {
    AdapterTrainer* trainer = nullptr;
    const std::vector<TrainSequence>* data = nullptr;
    LossOptions loss;
  };
  // `failures`: one per job, so that an error of one (its data, a value that is not finite) does not affect the others; its gradients
  // are discarded, its result is empty. Null: the first is thrown, and all gradients are discarded, as by any other error.
  using Failures = std::vector<std::optional<Error>>;
  static std::vector<ForwardBackwardResult> forward_backward_together(const std::vector<Job>& jobs, Failures* failures = nullptr);
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // Scores for several adapters, and for the base alone where a job has no trainer, in shared forwards.
  struct ScoreJob {
    AdapterTrainer* trainer = nullptr;
    const std::vector<TrainSequence>* data = nullptr;
  };
  static std::vector<std::vector<std::vector<float>>> score_together(FrozenBase& base, const std::vector<ScoreJob>& jobs, Failures* failures = nullptr);
  // As Trainer::evaluate.
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece);
  // Throws numeric (and changes nothing) when the gradient has a NaN or an infinity.
  OptimResult optim_step(const AdamParameters& adam);
  // Discards the gradients: after an error in the middle of a call, or to begin again. The state is as after an optim_step.
  void abandon_gradients() { gradients_.abandon(); }
  // As Trainer's.
  bool has_gradients() const { return gradients_.pending(); }
  void save_gradients(const std::filesystem::path& folder);
  void load_gradients(const std::filesystem::path& folder);

  const std::shared_ptr<const AdapterWeights>& weights() const { return weights_; }
  const AdapterLayout& layout() const { return *layout_; }
  std::int64_t step() const { return state_.steps(); }
  OptimizerState& state() { return state_; }
  void restore(const TrainerState& state);
  WeightImages gradient_images();  // after forward_backward, without accumulation
  std::uint64_t gradient_hash();   // XXH3-64 over the file-order fp32 values of all of them

 private:
  void begin(const std::vector<TrainSequence>& data, const LossOptions& loss);
  void publish();
  Backend& backend() { return base_->runtime().backend; }

  std::shared_ptr<FrozenBase> base_;
  std::shared_ptr<const AdapterLayout> layout_;
  RankRows rows_;                                  // all of them
  std::shared_ptr<const AdapterWeights> weights_;  // the masters themselves: adapters are fp32
  Gradients gradients_;
  OptimizerState state_;
};

}  // namespace lockstep
