#include "base/error.h"
#include "host/trained_model.h"

namespace lockstep {
namespace {

// All parameters move. Most clients make one gradient a step (TrainerOptions::mostly_one_call).
class FullModel : public TrainedModel {
 public:
  FullModel(const TrainingBase& base, const ModelSettings& settings)
      : base_(base), trainer_(*base.opened.runtime, base.opened.loaded.masters, options_of(base, settings)) {}

  void begin(std::size_t sequences, const LossOptions& loss) override { trainer_.begin_batch({.sequences = sequences}, loss); }
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override { trainer_.add(places, piece); }
  ForwardBackwardResult finish() override { return trainer_.finish_batch(); }
  void drop() override { trainer_.abandon_gradients(); }
  bool accumulates(std::size_t piece, std::size_t sequences) const override { return trainer_.needs_accumulators(piece == sequences); }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override { return trainer_.score(piece); }
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override { trainer_.evaluate(batch, places, piece); }
  OptimResult optim_step(const AdamParameters& adam) override { return trainer_.optim_step(adam); }
  std::int64_t steps() const override { return trainer_.step(); }
  SamplerWeights sampler_weights() override { return {trainer_.weights()}; }
  const Manifest& manifest() const override { return base_.opened.loaded.model->manifest(); }

  std::vector<float> state_image(StatePart part, std::size_t parameter) override { return trainer_.state_image(part, parameter); }
  bool has_state(StatePart part, std::size_t parameter) const override { return trainer_.has_state(part, parameter); }
  TrainingCheckpoint checkpoint(bool optimizer) override { return checkpoint_of(trainer_.state(), base_.opened.runtime->profile, optimizer); }
  void restore(TrainingCheckpoint&& checkpoint, bool optimizer) override {
    trainer_.restore(state_of(std::move(checkpoint), base_.opened.runtime->profile, manifest(), optimizer));
  }

 private:
  static TrainerOptions options_of(const TrainingBase& base, const ModelSettings& settings) {
    TrainerOptions options = trainer_options(base);
    options.optimizer = optimizer_family(settings);
    return options;
  }
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

std::int64_t write_trained_model(const std::filesystem::path& folder, TrainedModel& model, const Profile& profile, bool optimizer) {
  TrainingCheckpoint rest{.step = model.steps(), .profile_digest = profile.digest()};
  const StateSource source{[&](StatePart part, std::size_t i) { return (optimizer || part == StatePart::master) && model.has_state(part, i); },
                           [&](StatePart part, std::size_t i) { return model.state_image(part, i); }};
  save_checkpoint(folder, model.manifest(), rest, source, {.keep_last = 1});
  return rest.step;
}

void check_profile(const std::string& digest, const std::string& what, const Profile& profile) {
  if (digest != profile.digest())
    fail(ErrorCode::invalid_argument, "{} was written under profile digest {}, this server's is {} ('{}'); serve it under the same --profile and --frozen-base", what, digest,
         profile.digest(), profile.name);
}

TrainerState state_of(TrainingCheckpoint&& checkpoint, const Profile& profile, const Manifest& manifest, bool optimizer) {
  check_profile(checkpoint.profile_digest, "the checkpoint", profile);
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

TrainerOptions trainer_options(const TrainingBase& base) {
  return {.accumulate = true, .mostly_one_call = true, .share_prefixes = true, .optimizer_folder = base.optimizer_folder, .release_state = !base.optimizer_folder.empty(), .kept = base.kept};
}

OptimizerFamily optimizer_family(const ModelSettings& settings) {
  if (const OptimizerFamily* family = optimizer_named(settings.optimizer)) return *family;
  std::vector<std::string> names;
  for (const OptimizerFamily& family : optimizer_families()) names.emplace_back(family.name);
  fail(ErrorCode::unsupported, "optimizer_config.type is '{}', allowed are {}{}", settings.optimizer, fmt::join(names, ", "), did_you_mean(settings.optimizer, names));
}

std::unique_ptr<TrainedModel> make_full_model(const TrainingBase& base, const ModelSettings& settings) {
  check_trainable(base.opened.runtime->profile);
  return std::make_unique<FullModel>(base, settings);
}

}  // namespace lockstep
