#include "host/model_state.h"

#include "base/error.h"
#include "base/give_way.h"

namespace lockstep {

std::int64_t write_trained_model(const OnExecutor&, const std::filesystem::path& folder, TrainedModel& model, const std::string& digest, bool optimizer) {
  TrainingCheckpoint rest{.step = model.steps(), .profile_digest = digest};
  const StateSource source{[&](StatePart part, std::size_t i) { return (optimizer || part == StatePart::master) && model.has_state(part, i); },
                           [&](StatePart part, std::size_t i) { return model.state_image(part, i); }};
  save_checkpoint(folder, model.manifest(), rest, source, {.keep_last = 1});
  return rest.step;
}

void check_profile(const std::string& digest, const std::string& what, const Profile& profile) {
  if (digest != profile.digest() && !says_declared(digest, profile))
    fail(ErrorCode::invalid_argument, "{} was written under profile digest {}, this server's is {} ('{}'); serve it under the same --profile and --frozen-base",
         what, digest, profile.digest(), profile.name);
}

bool says_declared(const std::string& digest, const Profile& profile) { return digest == profile.training_digest(true); }

void restore_model(const OnExecutor&, TrainedModel& model, TrainingCheckpoint&& checkpoint, const Profile& profile, bool optimizer) {
  check_profile(checkpoint.profile_digest, "the checkpoint", profile);
  TrainerState state{std::move(checkpoint.masters), std::move(checkpoint.first_moments), std::move(checkpoint.second_moments), optimizer ? checkpoint.step : 0};
  for (std::size_t i = 0; i < model.manifest().parameters().size(); ++i) {
    const Parameter& parameter = model.manifest().parameters()[i];
    const bool moves = parameter.trained && !parameter.indexer;
    for (WeightImages* moments : {&state.first_moments, &state.second_moments}) {
      std::vector<float>& image = (*moments)[i];
      if (!optimizer || (moves && image.empty())) {
        image.clear();
        grow_with_zeros(image, moves ? static_cast<std::size_t>(parameter.size()) : 0);
      }
    }
  }
  model.restore(state);
  for (WeightImages* images : {&state.masters, &state.first_moments, &state.second_moments}) free_in_parts(*images);
}

}  // namespace lockstep
