#include "runs/training_state.h"

#include <algorithm>

#include "base/choice.h"
#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

namespace {
std::string config_hash(const RunDirectory& run) { return sha256_hex(run.config().dump()).substr(0, 16); }
}  // namespace

std::string optimizer_folder(const std::string& optimizer_state, const std::filesystem::path& runs) {
  if (optimizer_state == "memory") return "";
  if (optimizer_state != "file") fail_choice("optimizer_state", optimizer_state, {"memory", "file"});
  std::error_code error;
  std::filesystem::create_directories(runs, error);
  if (error) fail(ErrorCode::io, "cannot create '{}': {}", runs.string(), error.message());
  return runs.string();
}

TrainerState trainer_state(TrainingCheckpoint&& checkpoint) {
  return {std::move(checkpoint.masters), std::move(checkpoint.first_moments), std::move(checkpoint.second_moments), checkpoint.step};
}

TrainerState fresh_state(TrainerState state, WeightImages masters) {
  state.masters = std::move(masters);
  for (WeightImages* moments : {&state.first_moments, &state.second_moments})
    for (std::vector<float>& image : *moments) std::fill(image.begin(), image.end(), 0.0f);
  state.step = 0;
  return state;
}

void save_training(const RunDirectory& run, TrainerState state, const Manifest& manifest, const std::string& digest, const Json& position, int keep_last,
                   const std::string& part) {
  TrainingCheckpoint checkpoint;
  checkpoint.step = state.step;
  checkpoint.masters = std::move(state.masters);
  checkpoint.first_moments = std::move(state.first_moments);
  checkpoint.second_moments = std::move(state.second_moments);
  checkpoint.profile_digest = digest;
  checkpoint.config_hash = config_hash(run);
  checkpoint.position = position;
  save_checkpoint(run.path() / part / "checkpoints", manifest, checkpoint, {keep_last});
}

CheckpointHead training_head(const RunDirectory& run, std::int64_t step, const std::string& digest, const Json& position) {
  return {.step = step, .profile_digest = digest, .config_hash = config_hash(run), .position = position};
}

void check_training_digest(const std::string& found, const std::filesystem::path& folder, const Profile& profile, bool declared) {
  const std::string digest = profile.training_digest(declared);
  if (found != digest && found == profile.training_digest(!declared))
    fail(ErrorCode::invalid_argument,
         "the checkpoint '{}' was trained {} prompts shared in the backward, this run is {}; resume it with the same share_prompts", folder.string(),
         declared ? "without" : "with", declared ? "with them" : "without");
  if (found != digest)
    fail(ErrorCode::invalid_argument, "the checkpoint '{}' was written under profile digest {}, this run's is {}; resume under the same profile",
         folder.string(), found, digest);
}

std::string newest_checkpoint(const std::filesystem::path& run) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run / "checkpoints");
  if (steps.empty()) fail(ErrorCode::not_found, "there is no checkpoint in '{}'", run.string());
  return (run / "checkpoints" / checkpoint_name(steps.back())).string();
}

WeightImages forked_weights(const std::filesystem::path& checkpoint, const Manifest& manifest, const Profile& profile, bool declared) {
  TrainingCheckpoint loaded = load_checkpoint(checkpoint, manifest);
  check_training_digest(loaded.profile_digest, checkpoint, profile, declared);
  return std::move(loaded.masters);
}

}  // namespace lockstep
