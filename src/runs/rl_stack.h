// Everything that reinforcement learning needs in one process: a trainer, an engine that samples rollouts and one that
// evaluates, on one executor, both following the trainer's weights.
//   RlStack stack({.runtime = {.model = "models/countdown-glm"}}); PolicyTraining training(env, stack.tokenizer(), stack.rollouts(), stack.trainer(), s);
// Rollouts come from the trainer's own runtime or, to study a mismatch, from a second runtime under another profile; evaluation is always under
// the trainer's profile. Knows no environment and no loop. One thread.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>

#include "runs/local_critic.h"
#include "runs/local_mtp.h"
#include "serving/keep_forward.h"
#include "serving/loading.h"
#include "serving/local_sampler.h"

namespace lockstep {

struct RlStackSettings {
  RuntimeSettings runtime;      // for trainer and evaluation
  TrainedSettings trained;      // all parameters, or an adapter over them
  std::string rollout_profile;  // empty: the trainer's
  ProfileMix profile_mix = ProfileMix::refused;
  std::int64_t micro_batch = 0;                           // sequences, 0: all; changes no bit
  bool checkpoint_activations = false;                    // changes no bit
  bool batches_in_pieces = false;                         // a caller adds to an adapter's batch piece by piece
  std::string optimizer_folder;                           // TrainerOptions
  std::shared_ptr<KeptPasses> kept;                       // the same
  KeepForwardSettings keep_forward;                       // only where rollouts use the trainer's runtime, over ranks of kept_forwards_over
  std::function<SharePrompts(const Tokenizer&)> sharing;  // called when the tokenizer is read; none: forward
  StopToken stop;                                         // ends waiting for samples
  // A critic beside the policy, from a model with a value head or from the policy's (open_value_model); none: no critic.
  std::optional<TrainedSettings> critic = {};
  std::string critic_model;  // empty: the policy's folder
  // The model's layer of multi-token prediction, trained beside the policy, whose bits it does not change; engines draft with what it is after each step.
  // A new one begins with the seed of `mtp_initial`.
  MtpSettings mtp;
  MtpInitial mtp_initial;
  EngineOptions engine{.max_batch_rows = 1024, .max_sequences = 512};
};

class RlStack {
 public:
  // Errors: those of open_model, settings_with_mtp and LocalMtp; unsupported when the folder has no tokenizer; check_profile_mix.
  explicit RlStack(const RlStackSettings& settings);
  ~RlStack();
  RlStack(const RlStack&) = delete;
  RlStack& operator=(const RlStack&) = delete;

  LocalTrainer& trainer() { return *trainer_; }
  LocalCritic* critic() { return critic_.get(); }  // null: there is none
  LocalMtp* mtp() { return mtp_.get(); }           // null: that layer is not trained
  Sampler& rollouts() { return *rollout_sampler_; }
  Sampler& evaluation() { return *evaluation_sampler_; }
  const OpenedModel& opened() const { return opened_; }
  const RuntimeSettings& source() const { return source_; }  // what it was opened with
  std::string keep_forward() const;                          // the mode in which forwards are kept (serving/keep_forward.h)
  const std::shared_ptr<Executor>& executor() const { return executor_; }
  const Tokenizer& tokenizer() const { return *opened_.tokenizer; }
  const Model& model() const { return *opened_.model; }
  SharePrompts sharing() const { return sharing_; }
  const Profile& profile() const { return opened_.runtime->profile; }
  const Profile& rollout_profile() const { return rollout_runtime_->profile; }
  // Of the engine that samples rollouts, since it was made.
  EngineCounters rollout_counters() { return rollout_service_->counters(); }
  // Statistics of kept forwards: dropped and compared rows, and the most memory; none: they are off.
  struct KeptRows {
    std::int64_t dropped = 0, compared = 0, most_bytes = 0;
  };
  std::optional<KeptRows> kept_rows() const;

  // SHA-256 of the fp32 masters of what is trained (model/weights.h).
  std::string weights_sha256() { return trainer_->weights_sha256(); }
  std::string draft_sha256() { return mtp_ ? mtp_->weights_sha256(mtp_->images()) : std::string(); }  // the same of the layer; empty: it is not trained
  // Exports the present model as a Hugging Face folder with its tokenizer and the layer that was trained beside it, or the adapter as a PEFT folder;
  // replaces an existing one.
  void export_model(const std::filesystem::path& folder, DType dtype = DType::bf16);
  // The same of the critic: all weights as a folder that transformers' AutoModelForSequenceClassification reads, or an adapter's tensors.
  void export_critic(const std::filesystem::path& folder, DType dtype = DType::bf16);

 private:
  RuntimeSettings source_;
  std::string critic_folder_;
  SharePrompts sharing_ = SharePrompts::forward;
  OpenedModel opened_;
  std::shared_ptr<Runtime> rollout_runtime_;  // the trainer's, or one of its own
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<KeptForwards> kept_forwards_;  // null: nothing is kept
  std::unique_ptr<LocalTrainer> trainer_;
  std::unique_ptr<LocalCritic> critic_;
  std::unique_ptr<LocalMtp> mtp_;
  std::shared_ptr<GenerationService> evaluation_service_, rollout_service_;
  std::unique_ptr<Sampler> evaluation_sampler_, rollout_sampler_;
};

}  // namespace lockstep
