// Trains adapters (model/adapter.h) over frozen weights: many trainers on one base, each with its own masters, moments and steps.
//   auto base = std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{});
//   AdapterTrainer one(base, layout, initial_adapter(*layout, 1)); one.forward_backward(data, loss); one.optim_step(adam);
//   request.adapter = one.weights();
// The calls are Trainer's. Bits depend on the data and the adapter alone: not on other adapters that are trained or share a
// forward, nor on the base's ranks. Knows no files. One thread at a time for a base and all its trainers.
#pragma once
#include "train/adapter_rank.h"
#include "train/frozen_base.h"
#include "train/newest_whole.h"

namespace lockstep {

class AdapterTrainer;

// The state of an adapter put together from all ranks, as WholeState (train/whole_state.h) is a trainer's. Every function fails with unsupported after
// a step or a restore that failed in the middle.
class AdapterState {
 public:
  explicit AdapterState(const AdapterTrainer& trainer) : trainer_(trainer) {}
  WeightImages images(StatePart part) const;
  WeightImages masters() const { return images(StatePart::master); }
  std::vector<float> image(StatePart part, std::size_t parameter) const;
  TrainerState all() const;
  std::uint64_t master_hash() const;  // XXH3-64 over the file-order fp32 values of all masters

 private:
  const AdapterTrainer& trainer_;
};

class AdapterTrainer {
 public:
  // `masters` by ParameterId of the layout's manifest. To an optimizer A and B are hidden matrices, whatever they adapt. `owner`: whose kept forwards it
  // reads (KeptForwards::Root).
  AdapterTrainer(std::shared_ptr<FrozenBase> base, std::shared_ptr<const AdapterLayout> layout, const WeightImages& masters,
                 const OptimizerFamily& optimizer = adamw(), std::uint64_t owner = 0);
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
  using Failures = JobFailures;
  static std::vector<ForwardBackwardResult> forward_backward_together(const std::vector<Job>& jobs, Failures* failures = nullptr);
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  // Scores for several adapters, and for the base alone where a job has no trainer, in shared forwards.
  struct ScoreJob {
    AdapterTrainer* trainer = nullptr;
    const std::vector<TrainSequence>* data = nullptr;
    std::uint64_t owner = 0;  // of a job without a trainer: whose kept forwards it reads
  };
  static std::vector<std::vector<std::vector<float>>> score_together(FrozenBase& base, const std::vector<ScoreJob>& jobs, Failures* failures = nullptr);
  // As Trainer::evaluate.
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) {
    base_->evaluate(
        batch, places, piece, [this](int local) { return rank_weights(local).get(); }, owner_, first().sampled_as().identity());
  }
  // Throws numeric (and changes nothing) when the gradient has a NaN or an infinity.
  OptimResult optim_step(const AdamParameters& adam);
  // Discards the gradients: after an error in the middle of a call, or to begin again. The state is as after an optim_step.
  void abandon_gradients();
  // As Trainer's.
  bool has_gradients() const { return first().gradients().pending(); }
  void save_gradients(const std::filesystem::path& folder);
  void load_gradients(const std::filesystem::path& folder);

  // The whole adapter, on the base's runtime; as Trainer's.
  std::shared_ptr<const AdapterWeights> weights();
  const std::shared_ptr<const AdapterWeights>& rank_weights(int local) const { return part(local).weights(); }  // its share
  const AdapterLayout& layout() const { return *layout_; }
  std::int64_t step() const { return first().state().steps(); }
  AdapterState state() const { return AdapterState(*this); }
  void restore(const TrainerState& state);
  // As Trainer's.
  void restore(const std::function<StateReader(StateShare&)>& reader, std::int64_t steps);
  void each_share(const std::function<void(StateShare&)>& work);
  WeightImages gradient_images();  // after forward_backward, without accumulation

 private:
  friend class AdapterState;
  void begin(const std::vector<TrainSequence>& data, const LossOptions& loss);
  AdapterRank& first() const { return *parts_[0]; }  // asked for what is the same on all ranks
  AdapterRank& part(int local) const { return *parts_[static_cast<std::size_t>(local)]; }
  void check_usable() const;
  void break_off() const;
  // Of the whole adapter, assembled from of(part).
  template <class F>
  WeightImages images(const F& of) const;

  std::shared_ptr<FrozenBase> base_;
  std::shared_ptr<const AdapterLayout> layout_;
  std::vector<std::unique_ptr<AdapterRank>> parts_;  // of local ranks
  NewestWhole<AdapterWeights> whole_;                // if the ranks hold shares
  const std::uint64_t owner_;
};

}  // namespace lockstep
