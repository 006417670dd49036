#include "runs/local_trainer.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/model_export.h"
#include "model/adapter_merge.h"
#include "model/idle_ranks.h"
#include "model/weights.h"
#include "numerics/low_bit.h"
#include "runs/adam_settings.h"
#include "runs/policy_loss.h"
#include "runs/training_state.h"
#include "runs/truncated_importance.h"
#include "train/loss_columns.h"
#include "train/losses.h"
#include "train/micro_batch.h"

namespace lockstep {

namespace {
bool is_adapter(const TrainedSettings& settings) { return settings.rank > 0; }
}  // namespace

void check_profile_mix(const Profile& trainer, const Profile& sampler, ProfileMix mix) {
  if (mix == ProfileMix::allowed || trainer.digest() == sampler.digest()) return;
  fail(ErrorCode::invalid_argument,
       "the sampler's numerics profile is '{}' (digest {}), the trainer's '{}' (digest {}); allowed are equal ones, unless mixing is asked for "
       "(allow_profile_mix)",
       sampler.name, sampler.digest(), trainer.name, trainer.digest());
}

void check_trainable_run(const Profile& profile, const TrainedSettings& settings) {
  if (settings.rank == 0 || !is_low_bit_format(profile.weight_bits)) check_trainable(profile);
}

namespace {
std::vector<TrainSequence> train_sequences(const std::vector<PolicyDatum>& data) {
  std::vector<TrainSequence> sequences;
  sequences.reserve(data.size());
  for (const PolicyDatum& d : data) {
    TrainSequence& s = sequences.emplace_back(TrainSequence{d.tokens, d.targets, d.weights, d.advantages, d.old_logprobs, d.prefix_group, d.shared_prefix});
    s.temperature = d.temperature;
    s.kept_tokens = d.kept_tokens;
    s.proximal_logprobs = d.proximal_logprobs;
    s.reference_logprobs = d.reference_logprobs;
  }
  return sequences;
}

std::vector<TrainSequence> chosen(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& places) {
  std::vector<TrainSequence> piece;
  for (const std::size_t place : places) piece.push_back(data[place]);
  return piece;
}

// The sequences of each turn of the executor: a micro-batch of every data-parallel rank; of a pipeline several, so that its stages are at work together.
std::vector<std::vector<std::size_t>> turns(const TrainerOptions& options, const std::vector<TrainSequence>& data) {
  const std::int64_t at_once = options.ranks.pp > 1 ? std::int64_t{kMicroBatchesAStage} * options.ranks.pp : 1;
  const std::int64_t size = options.micro_batch * options.ranks.data() * at_once;
  std::vector<std::size_t> all(data.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (size == 0 || std::ssize(data) <= size) return {all};
  return micro_batches(data, all, static_cast<std::size_t>(size));
}

// `score` is a turn of the executor.
template <class F>
std::vector<std::vector<float>> score_in_turns(const TrainerOptions& options, const std::vector<TrainSequence>& data, const F& score) {
  const auto parts = turns(options, data);
  if (parts.size() == 1) return score(data);
  std::vector<std::vector<float>> scored(data.size());
  for (const std::vector<std::size_t>& places : parts) {
    auto rows = score(chosen(data, places));
    for (std::size_t i = 0; i < places.size(); ++i) scored[places[i]] = std::move(rows[i]);
  }
  return scored;
}
}  // namespace

LocalTrainer::LocalTrainer(const OpenedModel& opened, const TrainedSettings& settings, const TrainerOptions& options, std::shared_ptr<Executor> executor,
                           const LocalTrainer* beside)
    : settings_(settings), executor_(std::move(executor)), checkpoints_([this](const auto& work) { with_model(work); }, opened.ranks) {
  base_.options = options;
  base_.options.ranks = opened.ranks;
  // An adapter's trainer takes each piece of a batch as a call of its own: a turn's, or a caller's (with_model).
  base_.options.accumulate = options.accumulate || (is_adapter(settings_) && options.micro_batch > 0);
  base_.opened = opened;
  idle_ranks_ = idle_ranks(opened.ranks, *opened.model, opened.runtime->max_positions);
  if (is_adapter(settings_) && opened.ranks.deals_rows())
    idle_ranks_.emplace_back("rows=dealt deals out the sequences of steps that move all weights: for an adapter all ranks of a replica compute the same rows");
  for (const std::string& sentence : idle_ranks_)
    if (!beside || std::find(beside->idle_ranks_.begin(), beside->idle_ranks_.end(), sentence) == beside->idle_ranks_.end())
      log_warning(sentence, {{"ranks", opened.ranks.text()}});
  run_on(*executor_, WorkClass::training, [&](const OnExecutor& on) {
    if (is_adapter(settings_)) base_.weights = base_.opened.weight_set();
    models_.at(on).trained = make_trained_model(base_, settings_);
  }).get();
}

LocalTrainer::~LocalTrainer() {
  try {
    checkpoints_.finish();
  } catch (const std::exception& e) {
    log_error("a checkpoint was not finished", {{"error", e.what()}});
  }
  release([this](const OnExecutor& on) {
    Held& models = models_.at(on);
    models.reference.reset();
    models.frozen = {};
    models.trained.reset();
    base_ = {};
  });
}

std::vector<std::vector<float>> LocalTrainer::score(const std::vector<TrainSequence>& data) {
  return score_in_turns(base_.options, data,
                        [&](const std::vector<TrainSequence>& piece) { return with_model([&](TrainedModel& model) { return model.score(piece); }); });
}

ForwardBackwardResult LocalTrainer::forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) {
  const auto parts = turns(base_.options, data);
  LossOptions known = loss;
  if (parts.size() > 1) known.normaliser = loss_normaliser(data, loss);
  // In a batch whose targets are all masked there is nothing to take turns for.
  if (parts.size() == 1 || known.normaliser == 0) return with_model([&](TrainedModel& model) { return model.forward_backward(data, loss, index); });
  BatchPlan plan{.sequences = data.size()};
  for (const TrainSequence& d : data) plan.rows += std::ssize(d.tokens);
  try {
    with_model([&](TrainedModel& model) { model.begin(plan, known, index); });
    for (const std::vector<std::size_t>& places : parts) with_model([&](TrainedModel& model) { model.add(places, chosen(data, places)); });
    return with_model([](TrainedModel& model) { return model.finish(); });
  } catch (...) {
    abandon_gradients();
    throw;
  }
}

std::vector<std::vector<float>> LocalTrainer::score(const std::vector<PolicyDatum>& data) { return score(train_sequences(data)); }

void LocalTrainer::keep_reference() {
  run_on(*executor_, WorkClass::training, [&](const OnExecutor& on) {
    Held& models = models_.at(on);
    if (!is_adapter(settings_)) {
      models.frozen = base_;
      models.frozen.options.kept = nullptr;
      models.frozen.options.kept_forwards = nullptr;
      models.frozen.options.optimizer_folder.clear();
      models.frozen.weights = serving_model(base_.opened).weights;
    }
    models.reference = make_trained_model(is_adapter(settings_) ? base_ : models.frozen, {.base_only = true});
  }).get();
  has_reference_ = true;
}

std::vector<std::vector<float>> LocalTrainer::reference(const std::vector<PolicyDatum>& data) {
  if (!has_reference_) fail(ErrorCode::unsupported, "the reference was not kept");
  return score_in_turns(base_.options, train_sequences(data), [&](const std::vector<TrainSequence>& piece) {
    return with_model([&](const OnExecutor& on, TrainedModel&) { return models_.at(on).reference->score(piece); });
  });
}

PolicyResult LocalTrainer::forward_backward(const std::vector<PolicyDatum>& data, const PolicyLoss& loss) {
  std::vector<TrainSequence> sequences = train_sequences(data);
  const LossOptions options = loss_options(loss);
  std::int64_t truncated = 0;
  if (loss.importance_cap > 0) truncated = weigh_by_importance(sequences, score(sequences), loss.importance_cap);
  ForwardBackwardResult result = forward_backward(sequences, options);
  return {std::move(result.logprobs), std::move(result.entropies), result.loss, truncated};
}

void LocalTrainer::abandon_gradients() {
  with_model([](TrainedModel& model) { model.drop(); });
}

double LocalTrainer::optim_step(const OptimizerStep& step) {
  return take_step(adam_parameters(step, step.learning_rate)).gradient_norm;  // router and indexer are frozen in reinforcement learning
}

OptimResult LocalTrainer::take_step(const AdamParameters& adam) {
  checkpoints_.finish();
  AdamParameters own = adam;
  if (is_adapter(settings_)) own.router_bias_rate = 0;
  const OptimResult result = with_model([&](TrainedModel& model) { return model.optim_step(own); });
  publish();
  return result;
}

std::string LocalTrainer::training_digest() const { return base_.opened.runtime->profile.training_digest(base_.options.declared_prefixes); }

void LocalTrainer::save(const RunDirectory& run, const nlohmann::ordered_json& position, std::int64_t keep_last) {
  checkpoints_.save(run.checkpoints(), training_head(run, step(), training_digest(), position), keep_last);
}

nlohmann::ordered_json LocalTrainer::load(const RunDirectory& run) {
  checkpoints_.finish();
  Json position;
  std::vector<std::string> notes;
  const auto use = [&](const std::filesystem::path& folder) {
    const CheckpointHead head = read_checkpoint_head(folder);
    check_training_digest(head.profile_digest, folder, base_.opened.runtime->profile, base_.options.declared_prefixes);
    checkpoints_.restore(folder);
    position = head.position;
  };
  if (!use_latest_checkpoint(run.checkpoints(), use, notes)) {
    log_warning("no checkpoint to resume from; starting at step 0", {{"run", run.path().string()}});
    return Json::object();
  }
  publish();
  return position;
}

void LocalTrainer::begin_from(const std::filesystem::path& checkpoint) {
  checkpoints_.restore_weights(checkpoint, base_.opened.runtime->profile, base_.options.declared_prefixes);
  publish();
}

std::string LocalTrainer::weights_sha256() {
  return with_model([](TrainedModel& model) { return lockstep::weights_sha256(model.manifest(), model.master_images()); });
}

void LocalTrainer::export_to(const std::filesystem::path& folder, const TrainedExport& exported) {
  WeightImages masters = with_model([](TrainedModel& model) { return model.master_images(); });
  if (const AdapterLayout* adapter = with_model([](TrainedModel& model) { return model.adapter(); })) {
    if (!exported.merged) {
      export_adapter_folder(folder, *adapter, masters, exported.base, exported.overwrite);
      if (!exported.mtp) return;
      const ModelReader& files = *base_.opened.reader;
      SaveOptions with_layer{.dtype = files.file_dtype(), .mtp_masters = exported.mtp};
      if (exported.tokenizer) with_layer.tokenizer_files_from = exported.base;
      return export_model_folder(folder / "base", files, with_layer, Overwrite::yes);
    }
    masters = merged_weights(base_.opened.model->manifest(), base_.opened.masters(), *adapter, masters);
  }
  SaveOptions options;
  // Rounded to bf16, masters that are quantised would have other scales: the folder would not be the model that was trained.
  const Profile& profile = base_.opened.runtime->profile;
  options.dtype = profile.bf16_weights && !profile.bf16_files_keep_bits() ? DType::f32 : exported.dtype;
  options.mtp_from = base_.opened.reader;
  options.mtp_masters = exported.mtp;
  if (exported.tokenizer) options.tokenizer_files_from = exported.base;
  export_model_folder(folder, *base_.opened.model, masters, options, exported.overwrite);
}

std::string export_run(LocalTrainer& trainer, const RunDirectory& run, const std::string& folder, TrainedExport exported) {
  if (folder.empty()) exported.overwrite = Overwrite::yes;
  const std::filesystem::path target = folder.empty() ? run.export_folder() : std::filesystem::path(folder);
  trainer.export_to(target, exported);
  return target.string();
}

ForwardCounts work_of(LocalTrainer& trainer) {
  return trainer.with_model([](TrainedModel& model) { return model.work(); });
}

SamplerWeights LocalTrainer::weights_for(const std::shared_ptr<Runtime>& runtime, const std::shared_ptr<const WeightSet>& frozen) {
  return with_model([&](TrainedModel& model) -> SamplerWeights {
    if (runtime == base_.opened.runtime) return model.sampler_weights();
    if (!is_adapter(settings_)) return {make_weight_set(runtime->backend, runtime->model->manifest(), model.master_images(), runtime->profile, version_)};
    const auto layout = std::make_shared<const AdapterLayout>(*model.adapter());
    return {frozen, make_adapter(runtime->backend, layout, model.master_images(), version_)};
  });
}

void LocalTrainer::follow(std::shared_ptr<GenerationService> service, std::shared_ptr<Runtime> runtime, ProfileMix mix, std::shared_ptr<const WeightSet> frozen,
                          LayerWeights layer) {
  check_profile_mix(base_.opened.runtime->profile, runtime->profile, mix);
  followers_.push_back({std::move(service), std::move(runtime), std::move(frozen), std::move(layer)});
  publish();
}

void LocalTrainer::publish() {
  version_ = static_cast<std::uint64_t>(with_model([](TrainedModel& model) { return model.steps(); }));
  for (const Follower& follower : followers_) {
    SamplerWeights weights = weights_for(follower.runtime, follower.frozen);
    follower.service->weights().set(std::move(weights.weights), std::move(weights.adapter), follower.layer ? follower.layer() : nullptr);
  }
}

}  // namespace lockstep
