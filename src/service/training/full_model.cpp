#include "base/error.h"
#include "service/training/trained_model.h"

namespace lockstep {
namespace {

class FullModel : public TrainedModel {
 public:
  explicit FullModel(const TrainingBase& base)
      : base_(base), trainer_(*base.opened.runtime, base.opened.loaded.masters, {.accumulate = true, .share_prefixes = true, .kept = base.kept}) {}

  void begin(std::size_t sequences, const LossOptions& loss) override { trainer_.begin_batch({.sequences = sequences}, loss); }
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override { trainer_.add(places, piece); }
  ForwardBackwardResult finish() override { return trainer_.finish_batch(); }
  void drop() override { trainer_.drop_batch(); }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override { return trainer_.score(piece); }
  OptimResult optim_step(const AdamParameters& adam) override { return trainer_.optim_step(adam); }
  std::int64_t steps() const override { return trainer_.step(); }
  SamplerWeights sampler_weights() override { return {trainer_.weights()}; }
  const Manifest& manifest() const override { return base_.opened.loaded.model->manifest(); }

  TrainingCheckpoint checkpoint(bool optimizer) override { return checkpoint_of(trainer_.state(), base_.opened.runtime->profile, optimizer); }
  void restore(TrainingCheckpoint&& checkpoint, bool optimizer) override {
    trainer_.restore(state_of(std::move(checkpoint), base_.opened.runtime->profile, manifest(), optimizer));
  }

 private:
  const TrainingBase& base_;
  Trainer trainer_;
};

}  // namespace

TrainingCheckpoint checkpoint_of(TrainerState&& state, const Profile& profile, bool optimizer) {
  TrainingCheckpoint out;
  out.step = state.step;
  out.masters = std::move(state.masters);
  out.first_moments = std::move(state.first_moments);
  out.second_moments = std::move(state.second_moments);
  if (!optimizer)
    for (WeightImages* moments : {&out.first_moments, &out.second_moments})
      for (std::vector<float>& image : *moments) image.clear();
  out.profile_digest = profile.digest();
  return out;
}

TrainerState state_of(TrainingCheckpoint&& checkpoint, const Profile& profile, const Manifest& manifest, bool optimizer) {
  if (checkpoint.profile_digest != profile.digest())
    fail(ErrorCode::invalid_argument, "the checkpoint was written under profile digest {}, this server's is {}; serve it under the same profile", checkpoint.profile_digest, profile.digest());
  TrainerState state{std::move(checkpoint.masters), std::move(checkpoint.first_moments), std::move(checkpoint.second_moments), optimizer ? checkpoint.step : 0};
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
    const Parameter& parameter = manifest.parameters()[i];
    const bool moves = parameter.trained && !parameter.indexer;
    for (WeightImages* moments : {&state.first_moments, &state.second_moments}) {
      std::vector<float>& image = (*moments)[i];
      if (!optimizer || (moves && image.empty())) image.assign(moves ? static_cast<std::size_t>(parameter.size()) : 0, 0.0f);
    }
  }
  return state;
}

std::unique_ptr<TrainedModel> make_full_model(const TrainingBase& base) { return std::make_unique<FullModel>(base); }

}  // namespace lockstep
