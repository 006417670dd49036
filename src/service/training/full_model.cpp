#include "base/error.h"
#include "service/training/trained_model.h"

namespace lockstep {
namespace {

class FullModel : public TrainedModel {
 public:
  explicit FullModel(const TrainingBase& base)
      : base_(base), trainer_(*base.opened.runtime, base.opened.loaded.masters, {.accumulate = true, .share_prefixes = true}) {}

  void begin(std::size_t sequences, const LossOptions& loss) override { trainer_.begin_batch({.sequences = sequences}, loss); }
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override { trainer_.add(places, piece); }
  ForwardBackwardResult finish() override { return trainer_.finish_batch(); }
  void drop() override { trainer_.drop_batch(); }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override { return trainer_.score(piece); }
  OptimResult optim_step(const AdamParameters& adam) override { return trainer_.optim_step(adam); }
  std::int64_t steps() const override { return trainer_.step(); }
  SamplerWeights sampler_weights() override { return {trainer_.weights()}; }
  const Manifest& manifest() const override { return base_.opened.loaded.model->manifest(); }

  TrainingCheckpoint checkpoint(bool optimizer) override {
    TrainerState state = trainer_.state();
    TrainingCheckpoint out;
    out.step = state.step;
    out.masters = std::move(state.masters);
    out.first_moments = std::move(state.first_moments);
    out.second_moments = std::move(state.second_moments);
    if (!optimizer)
      for (WeightImages* moments : {&out.first_moments, &out.second_moments})
        for (std::vector<float>& image : *moments) image.clear();
    out.profile_digest = base_.opened.runtime->profile.digest();
    return out;
  }

  void restore(TrainingCheckpoint&& checkpoint, bool optimizer) override {
    const std::string digest = base_.opened.runtime->profile.digest();
    if (checkpoint.profile_digest != digest)
      fail(ErrorCode::invalid_argument, "the checkpoint was written under profile digest {}, this server's is {}; serve it under the same profile", checkpoint.profile_digest, digest);
    TrainerState state{std::move(checkpoint.masters), std::move(checkpoint.first_moments), std::move(checkpoint.second_moments), checkpoint.step};
    const std::vector<Parameter>& parameters = manifest().parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool moves = parameters[i].trained && !parameters[i].indexer;
      for (WeightImages* moments : {&state.first_moments, &state.second_moments}) {
        std::vector<float>& image = (*moments)[i];
        if (!optimizer || (moves && image.empty())) image.assign(moves ? static_cast<std::size_t>(parameters[i].size()) : 0, 0.0f);
      }
    }
    if (!optimizer) state.step = 0;
    trainer_.restore(state);
  }

 private:
  const TrainingBase& base_;
  Trainer trainer_;
};

}  // namespace

std::unique_ptr<TrainedModel> make_full_model(const TrainingBase& base) { return std::make_unique<FullModel>(base); }

}  // namespace lockstep
