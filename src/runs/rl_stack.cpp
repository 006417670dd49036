#include "runs/rl_stack.h"

#include "base/error.h"
#include "model/value_head.h"
#include "train/kept_passes.h"
#include "trained/led_model.h"

namespace lockstep {

RlStack::RlStack(const RlStackSettings& settings) : source_(settings.runtime), executor_(std::make_shared<Executor>()) {
  const RuntimeSettings of_policy = settings_with_mtp(settings.runtime, settings.mtp, settings.trained.rank);
  const Profile& profile = profile_by_name(settings.runtime.profile);
  const Profile& rollouts = settings.rollout_profile.empty() ? profile : profile_by_name(settings.rollout_profile);
  check_trainable_run(profile, settings.trained);
  if (settings.mtp.depths > 0 && settings.mtp.joint)
    fail(ErrorCode::unsupported, "mtp-joint is on, and on line a policy's weights do not depend on what guesses its rollouts; allowed is off");
  check(settings.keep_forward);
  check_profile_mix(profile, rollouts, settings.profile_mix);
  opened_ = open_model(of_policy);
  refuse_value_head(*opened_.model, "it samples nothing, and no policy is made of it; --critic-model may be it");
  if (!opened_.tokenizer) fail(ErrorCode::unsupported, "'{}' has no tokenizer.json, and an environment speaks text", settings.runtime.model);
  if (settings.sharing) sharing_ = settings.sharing(*opened_.tokenizer);
  open_beside({.runtime = of_policy});
  rollout_runtime_ = opened_.runtime;
  std::shared_ptr<const WeightSet> frozen;  // under an adapter, where rollouts have a runtime of their own
  if (rollouts.digest() != profile.digest()) {
    RuntimeSettings other = of_policy;
    other.profile = rollouts.name;
    other.ranks.clear();
    OpenedModel sampled = open_model(other);
    if (settings.trained.rank > 0) frozen = serving_model(sampled).weights;
    rollout_runtime_ = sampled.runtime;
  }

  if (rollout_runtime_ == opened_.runtime)
    kept_forwards_ = kept_forwards_over(opened_.ranks, settings.keep_forward, *opened_.runtime, settings.engine.page_size);
  trainer_ = std::make_unique<LocalTrainer>(opened_, settings.trained,
                                            TrainerOptions{.micro_batch = settings.micro_batch,
                                                           .checkpoint_activations = settings.checkpoint_activations,
                                                           .accumulate = settings.batches_in_pieces && settings.trained.rank > 0,
                                                           .share_prefixes = sharing_ != SharePrompts::off,
                                                           .declared_prefixes = sharing_ == SharePrompts::backward,
                                                           .optimizer_folder = settings.optimizer_folder,
                                                           .kept = settings.kept,
                                                           .kept_forwards = kept_forwards_},
                                            executor_);
  if (settings.mtp.depths > 0)
    mtp_ = std::make_unique<LocalMtp>(
        settings.mtp, opened_,
        TrainerOptions{.micro_batch = settings.micro_batch, .optimizer_folder = settings.optimizer_folder, .optimizer = optimizer_family(settings.trained)},
        settings.mtp_initial, *trainer_);
  if (settings.critic) {
    RuntimeSettings own = settings.runtime;
    if (!settings.critic_model.empty()) own.model = settings.critic_model;
    critic_folder_ = own.model;
    OpenedModel judge = open_value_model(own);
    open_beside({.runtime = own, .values = true});
    // Two adapters stand over one base. Where the policy's own weights move, a critic's adapter needs them as they were.
    if (settings.critic_model.empty() && settings.critic->rank > 0 && settings.trained.rank > 0)
      share_weights(judge, opened_, trainer_->weights_for(opened_.runtime, nullptr).weights);
    judge.runtime->backend.device().share_pool(opened_.runtime->backend.device());  // policy and critic compute in turns
    if (judge.model->facts().vocabulary != opened_.model->facts().vocabulary)
      fail(ErrorCode::invalid_argument, "the critic '{}' has a vocabulary of {}, the policy's is {}; allowed are models of one tokenizer", own.model,
           judge.model->facts().vocabulary, opened_.model->facts().vocabulary);
    critic_ = std::make_unique<LocalCritic>(judge, *settings.critic,
                                            TrainerOptions{.micro_batch = settings.micro_batch,
                                                           .checkpoint_activations = settings.checkpoint_activations,
                                                           .share_prefixes = sharing_ != SharePrompts::off,
                                                           .optimizer_folder = settings.optimizer_folder,
                                                           .kept = kept_by_steps(settings.micro_batch, judge.ranks.size() == 1)},
                                            executor_, trainer_.get());
  }
  const auto service_on = [&](const std::shared_ptr<Runtime>& runtime) {
    ServingOptions options;
    options.engine = settings.engine;
    if (runtime == opened_.runtime) options.engine.kept_forwards = kept_forwards_;
    options.priority = WorkClass::rollouts;
    ServingModel model{opened_.name, runtime, trainer_->weights_for(runtime, frozen).weights, opened_.tokenizer, executor_};
    LocalTrainer::LayerWeights layer;
    if (mtp_ && options.engine.drafts.has(DraftKind::mtp)) layer = [this, runtime] { return mtp_->weights_for(runtime); };
    const std::shared_ptr<const WeightSet> now = layer ? layer() : nullptr;
    if (now) model.mtp_weights = [now] { return now; };
    else model.mtp_weights = mtp_weights_of(opened_, runtime);
    auto service = std::make_shared<GenerationService>(std::move(model), options);
    trainer_->follow(service, runtime, settings.profile_mix, frozen, std::move(layer));
    return service;
  };
  evaluation_service_ = service_on(opened_.runtime);
  rollout_service_ = rollout_runtime_ == opened_.runtime ? evaluation_service_ : service_on(rollout_runtime_);
  evaluation_sampler_ = std::make_unique<LocalSampler>(evaluation_service_, settings.stop);
  rollout_sampler_ = std::make_unique<LocalSampler>(rollout_service_, settings.stop, kept_forwards_ != nullptr);
}

std::optional<RlStack::KeptRows> RlStack::kept_rows() const {
  if (!kept_forwards_) return {};
  const KeptForwards::Statistics& statistics = kept_forwards_->statistics();
  return KeptRows{statistics.dropped, statistics.compared, statistics.most};
}

std::string RlStack::keep_forward() const {
  if (!kept_forwards_) return "off";
  return kept_forwards_->row_values() == RowValues::operations ? "all" : "inputs";
}

void RlStack::export_critic(const std::filesystem::path& folder, DType dtype) {
  critic_->export_to(folder, {.base = critic_folder_, .dtype = dtype, .overwrite = Overwrite::yes});
}

RlStack::~RlStack() {
  rollout_service_->stop();
  evaluation_service_->stop();
}

void RlStack::export_model(const std::filesystem::path& folder, DType dtype) {
  const WeightImages layer = mtp_ ? mtp_->images() : WeightImages();
  // In a run's folder: a user's files beside the model stay.
  trainer_->export_to(folder, {.base = source_.model, .dtype = dtype, .overwrite = Overwrite::yes, .mtp = mtp_ ? &layer : nullptr});
}

}  // namespace lockstep
