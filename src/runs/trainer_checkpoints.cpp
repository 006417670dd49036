#include "runs/trainer_checkpoints.h"

#include <vector>

#include "base/error.h"
#include "base/seconds.h"
#include "checkpoint/share_checkpoint.h"
#include "runs/training_state.h"

namespace lockstep {

namespace {
std::string saving_words(const std::filesystem::path& checkpoints, std::int64_t step) {
  return fmt::format("saving the checkpoint '{}'; earlier ones are intact", (checkpoints / checkpoint_name(step)).string());
}
}  // namespace

// Of the trained parameters: the same for as long as the model is there.
const Manifest& TrainerCheckpoints::manifest() {
  return *of_model([](TrainedModel& model) { return &model.manifest(); });
}

void TrainerCheckpoints::save(const std::filesystem::path& checkpoints, CheckpointHead head, std::int64_t keep_last) {
  head.step = of_model([](TrainedModel& model) { return model.steps(); });
  if (!over_ranks()) return save_whole(checkpoints, head, static_cast<int>(keep_last));
  finish();
  const auto begun = std::chrono::steady_clock::now();
  with_context(saving_words(checkpoints, head.step), [&] {
    auto folder = std::make_unique<AtomicFolder>(checkpoints / checkpoint_name(head.step), AtomicFolder::Existing::replace);
    with_model_([&](TrainedModel& model) { model.shares().begin(folder->partial()); });
    saving_.emplace(Saving{std::move(folder), checkpoints, std::move(head), static_cast<int>(keep_last)});
  });
  seconds_ += seconds_since(begun);
}

// Parameter by parameter: no second state is in memory, and who samples on the same executor waits for one parameter at a time.
void TrainerCheckpoints::save_whole(const std::filesystem::path& checkpoints, const CheckpointHead& head, int keep_last) {
  const TrainingCheckpoint rest{.step = head.step, .profile_digest = head.profile_digest, .config_hash = head.config_hash, .position = head.position};
  const StateSource source{[&](StatePart part, std::size_t i) { return of_model([&](TrainedModel& model) { return model.has_state(part, i); }); },
                           [&](StatePart part, std::size_t i) { return of_model([&](TrainedModel& model) { return model.state_image(part, i); }); }};
  save_checkpoint(checkpoints, manifest(), rest, source, {keep_last});
}

void TrainerCheckpoints::finish() {
  if (!saving_) return;
  const auto begun = std::chrono::steady_clock::now();
  const Saving saving = *std::exchange(saving_, std::nullopt);
  with_context(saving_words(saving.checkpoints, saving.head.step), [&] {
    const std::vector<ShareFileEnd> ends = of_model([](TrainedModel& model) { return model.shares().finish(); });
    commit_shares(*saving.folder, saving.checkpoints, saving.head, ranks_.text(), ends, {saving.keep_last});
  });
  seconds_ += seconds_since(begun);
}

void TrainerCheckpoints::restore(const std::filesystem::path& checkpoint) {
  finish();
  if (over_ranks())
    if (const CheckpointHead head = read_checkpoint_head(checkpoint); head.in_shares())
      return with_context(fmt::format("reading the checkpoint '{}'", checkpoint.string()),
                          [&] { with_model_([&](TrainedModel& model) { model.shares().restore(checkpoint, head.step); }); });
  const TrainerState state = trainer_state(load_checkpoint(checkpoint, manifest()));
  with_model_([&](TrainedModel& model) { model.restore(state); });
}

void TrainerCheckpoints::restore_weights(const std::filesystem::path& checkpoint, const Profile& profile, bool declared_prefixes) {
  finish();
  const CheckpointHead head = read_checkpoint_head(checkpoint);
  if (over_ranks() && head.in_shares()) {
    check_training_digest(head.profile_digest, checkpoint, profile, declared_prefixes);
    with_model_([&](TrainedModel& model) { model.shares().restore(checkpoint, 0); });
  } else {
    WeightImages masters = forked_weights(checkpoint, manifest(), profile, declared_prefixes);
    with_model_([&](TrainedModel& model) { model.restore(fresh_state(state_of(model), std::move(masters))); });
  }
}

}  // namespace lockstep
