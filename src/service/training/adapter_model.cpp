#include <mutex>

#include "base/entropy.h"
#include "base/error.h"
#include "service/training/trained_model.h"
#include "train/adapter_trainer.h"
#include "train/open_batch.h"
#include "train/rank_record.h"

namespace lockstep {
namespace {

// An adapter over the base's frozen weights, which all adapters share.
class AdapterModel : public TrainedModel {
 public:
  AdapterModel(const TrainingBase& base, const ModelSettings& settings)
      : base_(base), layout_(adapter_layout(base, settings)), trainer_(frozen_base(base), layout_, initial_adapter(*layout_, *settings.seed)) {}

  void begin(std::size_t sequences, const LossOptions& loss) override {
    loss_ = loss;
    batch_.emplace(BatchPlan{.sequences = sequences}, loss, IndexTraining{});
  }
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override {
    batch_->check(places, piece);
    ForwardBackwardResult result = trainer_.forward_backward(piece, loss_);
    batch_->put(places, piece, std::move(result), {});
  }
  ForwardBackwardResult finish() override {
    ForwardBackwardResult result = batch_->finish();
    batch_.reset();
    return result;
  }
  void drop() override {
    batch_.reset();
    trainer_.abandon_gradients();
  }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override { return trainer_.score(piece); }
  OptimResult optim_step(const AdamParameters& adam) override { return trainer_.optim_step(adam); }
  std::int64_t steps() const override { return trainer_.step(); }
  SamplerWeights sampler_weights() override { return {base_.weights, trainer_.weights()}; }
  const Manifest& manifest() const override { return layout_->manifest(); }

  TrainingCheckpoint checkpoint(bool optimizer) override { return checkpoint_of(trainer_.state(), base_.opened.runtime->profile, optimizer); }
  void restore(TrainingCheckpoint&& checkpoint, bool optimizer) override {
    trainer_.restore(state_of(std::move(checkpoint), base_.opened.runtime->profile, manifest(), optimizer));
  }

 private:
  const TrainingBase& base_;
  std::shared_ptr<const AdapterLayout> layout_;
  AdapterTrainer trainer_;
  LossOptions loss_;
  std::optional<OpenBatch> batch_;
};

// The base itself, forward only: what a reference policy says.
class FrozenModel : public TrainedModel {
 public:
  explicit FrozenModel(const TrainingBase& base) : base_(base), frozen_(frozen_base(base)) {}
  void begin(std::size_t, const LossOptions&) override { refuse(); }
  void add(const std::vector<std::size_t>&, const std::vector<TrainSequence>&) override { refuse(); }
  ForwardBackwardResult finish() override { refuse(); }
  void drop() override {}
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override { return frozen_->score(piece); }
  OptimResult optim_step(const AdamParameters&) override { refuse(); }
  std::int64_t steps() const override { return 0; }
  SamplerWeights sampler_weights() override { return {base_.weights, nullptr}; }
  TrainingCheckpoint checkpoint(bool) override { refuse(); }
  void restore(TrainingCheckpoint&&, bool) override { refuse(); }
  const Manifest& manifest() const override { return base_.opened.loaded.model->manifest(); }

 private:
  [[noreturn]] static void refuse() { fail(ErrorCode::unsupported, "the model is base_only: allowed is forward alone"); }
  const TrainingBase& base_;
  std::shared_ptr<FrozenBase> frozen_;
};

}  // namespace

std::shared_ptr<const AdapterLayout> adapter_layout(const TrainingBase& base, const ModelSettings& settings) {
  const AdapterSettings adapter{.rank = settings.rank, .alpha = settings.alpha, .attention = settings.train_attn, .mlp = settings.train_mlp, .unembedding = settings.train_unembed};
  return std::make_shared<const AdapterLayout>(base.opened.loaded.model->manifest(), adapter);
}

std::shared_ptr<FrozenBase> frozen_base(const TrainingBase& base) {
  if (!base.frozen) base.frozen = std::make_shared<FrozenBase>(*base.opened.runtime, base.weights, TrainerOptions{.accumulate = true, .share_prefixes = true, .kept = base.kept});
  return base.frozen;
}

std::unique_ptr<TrainedModel> make_trained_model(const TrainingBase& base, const ModelSettings& settings) {
  if (settings.base_only) return std::make_unique<FrozenModel>(base);
  if (settings.rank > 0) return std::make_unique<AdapterModel>(base, settings);
  return make_full_model(base);
}

}  // namespace lockstep
