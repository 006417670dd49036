#include "parity/step_trainer.h"

#include "train/adapter_trainer.h"

namespace lockstep {

namespace {
class WholeStepTrainer final : public StepTrainer {
 public:
  WholeStepTrainer(Runtime& runtime, const ParityModel& model, const TrainerOptions& options, ProcessMail* lead)
      : manifest_(model.model->manifest()), trainer_(runtime, model, options, lead) {}
  const Manifest& manifest() const override { return manifest_; }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data) override { return trainer_.score(data); }
  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) override {
    return trainer_.forward_backward(data, loss, index);
  }
  void optim_step(const AdamParameters& adam) override { trainer_.optim_step(adam); }
  WeightImages gradient_images() override { return trainer_.gradient_images(); }
  WeightImages master_images() override { return trainer_.master_images(); }
  std::shared_ptr<const WeightSet> weights() override { return trainer_.weights(); }
  std::shared_ptr<const AdapterWeights> adapter() override { return nullptr; }
  CommunicatorCounters traffic() override { return trainer_.traffic(); }
  ForwardCounts work() override { return trainer_.work(); }

 private:
  const Manifest& manifest_;
  BenchTrainer trainer_;
};

class AdapterStepTrainer final : public StepTrainer {
 public:
  AdapterStepTrainer(Runtime& runtime, const ParityModel& model, const TrainerOptions& options)
      : weights_(make_weight_set(runtime.backend, model.model->manifest(), model.masters, runtime.profile, 0)),
        base_(std::make_shared<FrozenBase>(runtime, weights_, options)),
        layout_(step_adapter(*model.model)),
        trainer_(base_, layout_, initial_weights(layout_->manifest(), kSeed, kDeviation)) {}
  const Manifest& manifest() const override { return layout_->manifest(); }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data) override { return trainer_.score(data); }
  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining&) override {
    return trainer_.forward_backward(data, loss);
  }
  void optim_step(const AdamParameters& adam) override { trainer_.optim_step(adam); }
  WeightImages gradient_images() override { return trainer_.gradient_images(); }
  WeightImages master_images() override { return trainer_.state().masters(); }
  std::shared_ptr<const WeightSet> weights() override { return weights_; }
  std::shared_ptr<const AdapterWeights> adapter() override { return trainer_.weights(); }
  CommunicatorCounters traffic() override { return traffic_of(base_->ranks()); }
  ForwardCounts work() override { return base_->work(); }

 private:
  static constexpr std::uint64_t kSeed = 9;
  static constexpr double kDeviation = 0.05;

  std::shared_ptr<const WeightSet> weights_;
  std::shared_ptr<FrozenBase> base_;
  std::shared_ptr<const AdapterLayout> layout_;
  AdapterTrainer trainer_;
};
}  // namespace

std::shared_ptr<const AdapterLayout> step_adapter(const Model& model) {
  // Alpha over rank is no power of two: a scale that is multiplied elsewhere shows.
  return std::make_shared<const AdapterLayout>(model.manifest(), AdapterSettings{.rank = 6, .alpha = 7, .attention = true, .mlp = true, .unembedding = true});
}

std::unique_ptr<StepTrainer> whole_step_trainer(Runtime& runtime, const ParityModel& model, const TrainerOptions& options, ProcessMail* lead) {
  return std::make_unique<WholeStepTrainer>(runtime, model, options, lead);
}

std::unique_ptr<StepTrainer> adapter_step_trainer(Runtime& runtime, const ParityModel& model, const TrainerOptions& options) {
  return std::make_unique<AdapterStepTrainer>(runtime, model, options);
}

}  // namespace lockstep
