// A critic in this process: a model with a value head (model/value_head.h), all weights or an adapter, trained by a LocalTrainer on the executor of
// the policy it judges. Implements ValuePort, and has checkpoints and an export beside the policy's. One thread at a time, never the executor's.
//   LocalCritic critic(open_value_model(runtime), {.rank = 0}, options, executor); critic.values(data); critic.save(run.path(), 12, 2);
// With TrainerOptions::kept the forward of the last values() is kept for the gradient of the same states, which is then its backward alone; no bit changes.
#pragma once
#include "runs/local_trainer.h"
#include "runs/value_port.h"

namespace lockstep {

class LocalCritic final : public ValuePort {
 public:
  // `policy`: LocalTrainer's `beside`. Errors: those of LocalTrainer; unsupported for a model without a value head.
  LocalCritic(const OpenedModel& opened, const TrainedSettings& settings, const TrainerOptions& options, std::shared_ptr<Executor> executor,
              const LocalTrainer* policy = nullptr);

  std::vector<std::vector<float>> values(const std::vector<ValueDatum>& data) override;
  ValueResult forward_backward(const std::vector<ValueDatum>& data, double clip) override;
  double optim_step(const OptimizerStep& step) override { return trainer_.optim_step(step); }

  // RUN/critic/checkpoints, of the policy's step: written before the policy's own checkpoint of that step, and one more than the policy keeps, so that
  // a kill between the two leaves both of an earlier step. load(): the one of the step that the policy resumes from. Errors: not_found where
  // there is none; those of load_checkpoint.
  void save(const std::filesystem::path& run, std::int64_t policy_step, std::int64_t keep_last);
  void load(const std::filesystem::path& run, std::int64_t policy_step);
  std::string weights_sha256() { return trainer_.weights_sha256(); }
  LocalTrainer& trainer() { return trainer_; }
  void export_to(const std::filesystem::path& folder, const TrainedExport& exported) { trainer_.export_to(folder, exported); }

 private:
  static OpenedModel checked(const OpenedModel& opened);
  void drop_kept();
  Profile profile_;
  std::shared_ptr<KeptPasses> kept_;   // null: none are kept
  std::vector<TrainSequence> valued_;  // by the last values(), where its forward is kept
  LocalTrainer trainer_;
};

}  // namespace lockstep
