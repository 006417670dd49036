#include "runs/local_trainer.h"

#include "base/error.h"
#include "runs/truncated_importance.h"

namespace lockstep {

void check_profile_mix(const Profile& trainer, const Profile& sampler, ProfileMix mix) {
  if (mix == ProfileMix::allowed || trainer.digest() == sampler.digest()) return;
  fail(ErrorCode::invalid_argument,
       "the sampler's numerics profile is '{}' (digest {}), the trainer's '{}' (digest {}); allowed are equal ones, unless mixing is asked for "
       "(allow_profile_mix)",
       sampler.name, sampler.digest(), trainer.name, trainer.digest());
}

LocalTrainer::LocalTrainer(std::shared_ptr<Runtime> runtime, const WeightImages& masters, const TrainerOptions& options,
                           std::shared_ptr<Executor> executor)
    : runtime_(std::move(runtime)), executor_(std::move(executor)) {
  executor_->run(WorkPriority::training, [&] { trainer_ = std::make_unique<Trainer>(*runtime_, masters, options); }).get();
  weights_ = trainer_->weights();
}

LocalTrainer::~LocalTrainer() {
  try {  // its buffers go back on the device's thread
    executor_->run(WorkPriority::training, [this] { trainer_.reset(); }).get();
  } catch (const std::exception&) {  // the executor stopped first: nobody else is on the device
    trainer_.reset();
  }
}

PolicyResult LocalTrainer::forward_backward(const std::vector<PolicyDatum>& data, const PolicyLoss& loss) {
  std::vector<TrainSequence> sequences;
  sequences.reserve(data.size());
  for (const PolicyDatum& d : data) sequences.push_back({d.tokens, d.targets, d.weights, d.advantages, d.old_logprobs, d.prefix_group, d.shared_prefix});
  LossOptions options;
  options.kind = LossKind::policy;
  options.parameters.clip_low = 1.0f - loss.clip_low;
  options.parameters.clip_high = 1.0f + loss.clip_high;
  options.normaliser = loss.normaliser;
  std::int64_t truncated = 0;
  ForwardBackwardResult result = with_trainer([&](Trainer& trainer) {
    if (loss.importance_cap > 0) truncated = weigh_by_importance(sequences, trainer.score(sequences), loss.importance_cap);
    return trainer.forward_backward(sequences, options);
  });
  return {std::move(result.logprobs), std::move(result.entropies), result.loss, truncated};
}

double LocalTrainer::optim_step(const OptimizerStep& step) {
  AdamParameters adam;
  adam.learning_rate = step.learning_rate;
  adam.beta1 = step.beta1;
  adam.beta2 = step.beta2;
  adam.eps = step.eps;
  adam.weight_decay = step.weight_decay;
  adam.max_norm = step.max_norm;
  adam.router_bias_rate = 0;  // frozen in reinforcement learning, as the indexer is
  const OptimResult result = with_trainer([&](Trainer& trainer) { return trainer.optim_step(adam); });
  publish();
  return result.gradient_norm;
}

std::shared_ptr<const WeightSet> LocalTrainer::weights_for(const std::shared_ptr<Runtime>& runtime) {
  return with_trainer([&](Trainer& trainer) -> std::shared_ptr<const WeightSet> {
    if (runtime == runtime_) return trainer.weights();
    return make_weight_set(runtime->backend, runtime->model->manifest(), trainer.master_images(), runtime->profile, trainer.weights()->version);
  });
}

void LocalTrainer::follow(std::shared_ptr<GenerationService> service, std::shared_ptr<Runtime> runtime, ProfileMix mix) {
  check_profile_mix(runtime_->profile, runtime->profile, mix);
  service->set_weights(weights_for(runtime));
  followers_.push_back({std::move(service), std::move(runtime)});
}

void LocalTrainer::publish() {
  weights_ = weights_for(runtime_);
  for (const Follower& follower : followers_) follower.service->set_weights(weights_for(follower.runtime));
}

}  // namespace lockstep
