#include "service/training_state.h"

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

namespace lockstep {

namespace {
std::string config_hash(const RunDirectory& run) { return sha256_hex(run.config().dump()).substr(0, 16); }
}  // namespace

std::string optimizer_folder(const std::string& optimizer_state, const std::filesystem::path& runs) {
  if (optimizer_state == "memory") return "";
  if (optimizer_state != "file") fail(ErrorCode::invalid_argument, "optimizer_state is '{}', allowed are memory, file", optimizer_state);
  std::error_code error;
  std::filesystem::create_directories(runs, error);
  if (error) fail(ErrorCode::io, "cannot create '{}': {}", runs.string(), error.message());
  return runs.string();
}

void save_training(const RunDirectory& run, Trainer& trainer, const Manifest& manifest, const Profile& profile, const Json& position, int keep_last) {
  TrainerState state = trainer.state();
  TrainingCheckpoint checkpoint;
  checkpoint.step = state.step;
  checkpoint.masters = std::move(state.masters);
  checkpoint.first_moments = std::move(state.first_moments);
  checkpoint.second_moments = std::move(state.second_moments);
  checkpoint.profile_digest = profile.training_digest(trainer.options().declared_prefixes);
  checkpoint.config_hash = config_hash(run);
  checkpoint.position = position;
  save_checkpoint(run.checkpoints(), manifest, checkpoint, {keep_last});
}

Json restore_training(const RunDirectory& run, Trainer& trainer, const Manifest& manifest, const Profile& profile) {
  std::optional<LoadedCheckpoint> loaded = load_latest_checkpoint(run.checkpoints(), manifest);
  if (!loaded) {
    log_warning("no checkpoint to resume from; starting at step 0", {{"run", run.path().string()}});
    return Json::object();
  }
  TrainingCheckpoint& checkpoint = loaded->checkpoint;
  const bool declared = trainer.options().declared_prefixes;
  const std::string digest = profile.training_digest(declared);
  if (checkpoint.profile_digest == profile.training_digest(!declared))
    fail(ErrorCode::invalid_argument, "the checkpoint '{}' was trained {} prompts shared in the backward, this run is {}; resume it with the same share_prompts",
         loaded->folder.string(), declared ? "without" : "with", declared ? "with them" : "without");
  if (checkpoint.profile_digest != digest)
    fail(ErrorCode::invalid_argument, "the checkpoint '{}' was written under profile digest {}, this run's is {}; resume under the same profile",
         loaded->folder.string(), checkpoint.profile_digest, digest);
  trainer.restore({std::move(checkpoint.masters), std::move(checkpoint.first_moments), std::move(checkpoint.second_moments), checkpoint.step});
  return checkpoint.position;
}

}  // namespace lockstep
