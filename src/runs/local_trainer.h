// The port TrainerPort (runs/trainer_port.h) over the trainer of this process. Its work runs on the executor, as training.
// Each optim_step publishes the new weights to the generation services that follow it: one on the trainer's own runtime gets the
// trainer's WeightSet itself (a pointer, nothing is copied or converted); one on another runtime gets a WeightSet made from the
// masters under its own profile. One thread at a time, never the executor's.
//   LocalTrainer trainer(runtime, masters, {}, executor); trainer.follow(service, runtime);
#pragma once
#include <memory>

#include "serving/serving.h"
#include "runs/trainer_port.h"
#include "train/trainer.h"

namespace lockstep {

// Whether weights may go to a sampler of another numerics profile, whose log-probabilities are then not the trainer's.
enum class ProfileMix { refused, allowed };
// Error invalid_argument that names both profiles and digests, when they differ and mixing is refused.
void check_profile_mix(const Profile& trainer, const Profile& sampler, ProfileMix mix);

class LocalTrainer : public TrainerPort {
 public:
  LocalTrainer(std::shared_ptr<Runtime> runtime, const WeightImages& masters, const TrainerOptions& options, std::shared_ptr<Executor> executor);
  ~LocalTrainer() override;
  LocalTrainer(const LocalTrainer&) = delete;
  LocalTrainer& operator=(const LocalTrainer&) = delete;

  PolicyResult forward_backward(const std::vector<PolicyDatum>& data, const PolicyLoss& loss) override;
  double optim_step(const OptimizerStep& step) override;
  std::string profile_digest() const override { return runtime_->profile.digest(); }
  std::uint64_t weights_version() const override { return weights_->version; }

  // What a service on `runtime` starts with, and what it would be given now.
  std::shared_ptr<const WeightSet> weights_for(const std::shared_ptr<Runtime>& runtime);
  // From now on `service`, which stands on `runtime`, gets every new version; at once the current one.
  void follow(std::shared_ptr<GenerationService> service, std::shared_ptr<Runtime> runtime, ProfileMix mix = ProfileMix::refused);

  // Runs work(Trainer&) on the executor and returns what it returns: checkpoints, hashes. After a restore call publish().
  template <class F>
  auto with_trainer(F&& work) {
    return executor_->run(WorkPriority::training, [&] { return work(*trainer_); }).get();
  }
  void publish();

 private:
  struct Follower {
    std::shared_ptr<GenerationService> service;
    std::shared_ptr<Runtime> runtime;
  };
  std::shared_ptr<Runtime> runtime_;
  std::shared_ptr<Executor> executor_;
  std::unique_ptr<Trainer> trainer_;            // executor's thread
  std::shared_ptr<const WeightSet> weights_;    // the trainer's newest
  std::vector<Follower> followers_;
};

}  // namespace lockstep
