// The checkpoints of a trainer's model in any folder of checkpoints. Of one rank the whole state is written before save() returns. Over ranks each writes its
// share to a file of its own while the trainer goes on (checkpoint/share_checkpoint.h), and the checkpoint is in place after finish(), with which the next
// save, restore and optimizer step begin. Knows no run and no steps. The thread of the trainer (runs/local_trainer.h).
//   TrainerCheckpoints checkpoints(with_model, ranks); checkpoints.save(folder, head, 3); ... checkpoints.finish();
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/file.h"
#include "checkpoint/checkpoint_head.h"
#include "numerics/profile.h"
#include "trained/trained_model.h"

namespace lockstep {

class TrainerCheckpoints {
 public:
  // Runs `work` where the model may be used, and returns when it is done.
  using WithModel = std::function<void(const std::function<void(TrainedModel&)>& work)>;
  TrainerCheckpoints(WithModel with_model, const RankLayout& ranks) : with_model_(std::move(with_model)), ranks_(ranks) {}

  // Of a state with this head (its step is the model's). Errors: io. Over ranks errors of writing are thrown by finish().
  void save(const std::filesystem::path& checkpoints, CheckpointHead head, std::int64_t keep_last);
  void finish();
  // After these the trainer publishes. Errors: not_found, corrupt_file.
  void restore(const std::filesystem::path& checkpoint);
  // The weights alone: step 0, new optimizer state. Error invalid_argument: check_training_digest (runs/training_state.h).
  void restore_weights(const std::filesystem::path& checkpoint, const Profile& profile, bool declared_prefixes);
  // Seconds that save() and finish() have taken over ranks since the last call: what training stood still for checkpoints.
  double take_seconds() { return std::exchange(seconds_, 0.0); }

 private:
  // A checkpoint whose ranks are writing.
  struct Saving {
    std::unique_ptr<AtomicFolder> folder;
    std::filesystem::path checkpoints;
    CheckpointHead head;
    int keep_last = 0;
  };
  void save_whole(const std::filesystem::path& checkpoints, const CheckpointHead& head, int keep_last);
  // What f(model) returns, where the model may be used.
  template <class F>
  auto of_model(const F& f) {
    std::optional<std::invoke_result_t<F, TrainedModel&>> found;
    with_model_([&](TrainedModel& model) { found = f(model); });
    return std::move(*found);
  }
  const Manifest& manifest();
  bool over_ranks() const { return ranks_.size() > 1; }

  WithModel with_model_;
  RankLayout ranks_;
  std::optional<Saving> saving_;
  double seconds_ = 0;
};

}  // namespace lockstep
