// The trainer of a run in this process: all parameters of a model, or an adapter over them (trained/trained_model.h). Its work runs on the executor
// in the class `training`. Implements TrainerPort (runs/trainer_port.h) and adds what runs on disk need.
//   LocalTrainer trainer(opened, {.rank = 8, .seed = 1}, {}, executor); trainer.follow(service, runtime);
//   trainer.forward_backward(sequences, loss); trainer.optim_step(adam); trainer.save(run, {{"next_step", 1}}, 3);
// With TrainerOptions::micro_batch a batch takes several turns of the executor, one piece each, with the same bits.
// Each optim_step publishes the new weights to the generation services that follow. All parameters: a service on the trainer's runtime gets the
// trainer's WeightSet itself (a pointer; nothing is copied), one on another runtime gets a WeightSet made from the masters under its profile. An
// adapter: the base's weights stay, and requests use the adapter. One thread at a time, never the executor's.
#pragma once
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "checkpoint/run_directory.h"
#include "runs/trained_export.h"
#include "runs/trainer_checkpoints.h"
#include "runs/trainer_port.h"
#include "serving/on_executor.h"
#include "serving/serving.h"
#include "trained/trained_model.h"

namespace lockstep {

// Whether samplers may have another numerics profile; their log-probabilities then differ from the trainer's.
enum class ProfileMix { refused, allowed };
// Error invalid_argument with both profiles and digests when they differ and mixing is refused.
void check_profile_mix(const Profile& trainer, const Profile& sampler, ProfileMix mix);

// Called before a model is read: fewer profiles can train all parameters than an adapter. Error: that of check_trainable.
void check_trainable_run(const Profile& profile, const TrainedSettings& settings);

class LocalTrainer : public TrainerPort {
 public:
  // The options get the ranks of `opened`. What the log has of ranks with nothing to do by a trainer `beside` it, of the same run, is not said again.
  // Errors: those of the trainers.
  LocalTrainer(const OpenedModel& opened, const TrainedSettings& settings, const TrainerOptions& options, std::shared_ptr<Executor> executor,
               const LocalTrainer* beside = nullptr);
  ~LocalTrainer() override;
  LocalTrainer(const LocalTrainer&) = delete;
  LocalTrainer& operator=(const LocalTrainer&) = delete;

  std::vector<std::vector<float>> score(const std::vector<PolicyDatum>& data) override;
  // Under the model as it was opened, whatever was loaded since: for an adapter its base; for all weights a copy that keep_reference() makes.
  std::vector<std::vector<float>> reference(const std::vector<PolicyDatum>& data) override;
  void keep_reference();
  PolicyResult forward_backward(const std::vector<PolicyDatum>& data, const PolicyLoss& loss) override;
  void abandon_gradients() override;
  double optim_step(const OptimizerStep& step) override;
  // Over ranks it is in place after checkpoints().finish(), with which optimizer steps, save() and what reads checkpoints here begin.
  void save(const RunDirectory& run, const nlohmann::ordered_json& position, std::int64_t keep_last) override;
  nlohmann::ordered_json load(const RunDirectory& run) override;
  std::string profile_digest() const override { return base_.opened.runtime->profile.digest(); }
  std::uint64_t weights_version() const override { return version_; }

  // The same with the trainer's own data type (train/data.h).
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data);
  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index = {});
  OptimResult take_step(const AdamParameters& adam);  // router_bias_rate: of all parameters; an adapter's router is frozen
  std::int64_t step() const { return static_cast<std::int64_t>(version_); }
  // By which save() writes and load() reads. After a restore by them call publish().
  TrainerCheckpoints& checkpoints() { return checkpoints_; }
  // Starts from the weights of another run's checkpoint: step 0, new optimizer state.
  void begin_from(const std::filesystem::path& checkpoint);
  // SHA-256 of the fp32 masters of the trained parameters (model/weights.h).
  std::string weights_sha256();
  // A Hugging Face folder of the model as it is now, or a PEFT folder of the adapter.
  void export_to(const std::filesystem::path& folder, const TrainedExport& exported);
  // The digest stored in checkpoints: the profile's, changed where prefixes may be declared.
  std::string training_digest() const;
  // The present weights for a service on `runtime`. `frozen`: the base's weights there, for an adapter's service on another runtime.
  SamplerWeights weights_for(const std::shared_ptr<Runtime>& runtime, const std::shared_ptr<const WeightSet>& frozen = nullptr);
  // Publishes the current version to `service`, which uses `runtime`, and from now on every new one; with each what `layer` then returns, the weights of
  // a layer of multi-token prediction that is trained beside the model (runs/local_mtp.h); none: the service keeps its own.
  using LayerWeights = std::function<std::shared_ptr<const WeightSet>()>;
  void follow(std::shared_ptr<GenerationService> service, std::shared_ptr<Runtime> runtime, ProfileMix mix = ProfileMix::refused,
              std::shared_ptr<const WeightSet> frozen = nullptr, LayerWeights layer = nullptr);

  // Runs work(TrainedModel&), or work(const OnExecutor&, TrainedModel&), on the executor and returns what it returns. After a restore, or a step of the
  // layer, call publish().
  template <class F>
  auto with_model(F&& work) {
    const auto step = [&](const OnExecutor& on) {
      if constexpr (std::is_invocable_v<F&, TrainedModel&>) return work(*models_.at(on).trained);
      else return work(on, *models_.at(on).trained);
    };
    return run_on(*executor_, WorkClass::training, step).get();
  }
  // For the destructor of what is trained beside the model: frees its buffers (release_on of serving/on_executor.h).
  template <class F>
  void release(const F& work) {
    release_on(*executor_, WorkClass::training, work);
  }
  void publish();
  // The runtimes of its ranks, which what is trained beside the model shares.
  std::shared_ptr<RankRuntimes> ranks() { return rank_runtimes(base_); }

 private:
  struct Follower {
    std::shared_ptr<GenerationService> service;
    std::shared_ptr<Runtime> runtime;
    std::shared_ptr<const WeightSet> frozen;
    LayerWeights layer;
  };

  struct Held {
    std::unique_ptr<TrainedModel> trained;
    TrainedBase frozen;  // of the reference, when all parameters are trained
    std::unique_ptr<TrainedModel> reference;
  };

  TrainedBase base_;
  TrainedSettings settings_;
  std::shared_ptr<Executor> executor_;
  OfExecutor<Held> models_;
  bool has_reference_ = false;
  std::uint64_t version_ = 0;            // of the weights: steps taken
  std::vector<std::string> idle_ranks_;  // sentences about them
  std::vector<Follower> followers_;
  TrainerCheckpoints checkpoints_;
};

// Work counts of all forwards so far.
ForwardCounts work_of(LocalTrainer& trainer);
// Exports to `folder`, or where it is empty into the run's own, whose earlier export goes. Returns where.
std::string export_run(LocalTrainer& trainer, const RunDirectory& run, const std::string& folder, TrainedExport exported);

}  // namespace lockstep
