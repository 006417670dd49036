#include "runs/local_mtp.h"

#include <cmath>
#include <utility>

#include "base/choice.h"
#include "base/error.h"
#include "checkpoint/json_file.h"
#include "checkpoint/training_checkpoint.h"
#include "numerics/low_bit.h"
#include "runs/training_state.h"
#include "trained/trained_layer.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
constexpr const char kPart[] = "mtp";  // of a run's folder

static_assert(MtpSettings::kMostDepths == MtpTraining::kMostDepths);

fs::path layer_checkpoints(const fs::path& run) { return run / kPart / "checkpoints"; }

const MtpLayer& layer_of(const OpenedModel& opened, const MtpSettings& settings) {
  if (!opened.model->mtp())
    fail(ErrorCode::unsupported, "mtp-depths is {}, and the model '{}' of type {} has no layer of multi-token prediction to train; allowed is 0",
         settings.depths, opened.name, opened.model->family());
  return *opened.model->mtp();
}

MtpLoss loss_named(const std::string& name) { return static_cast<MtpLoss>(check_choice("mtp-loss", name, mtp_losses())); }

bool has_indexer(const MtpLayer& layer) {
  for (const Parameter& p : layer.manifest().parameters())
    if (p.indexer) return true;
  return false;
}
}  // namespace

std::vector<std::string> mtp_losses() { return {"ce", "tv", "both"}; }
std::vector<std::string> mtp_keys() { return {"auto", "shared", "own"}; }
std::vector<std::string> mtp_states() { return {"auto", "normed", "unnormed"}; }

RuntimeSettings settings_with_mtp(const RuntimeSettings& settings, const MtpSettings& mtp, std::int64_t adapter_rank) {
  if (mtp.depths == 0) return settings;
  if (adapter_rank > 0 && is_low_bit_format(profile_by_name(settings.profile).weight_bits))
    fail(ErrorCode::unsupported, "mtp-depths is {} beside an adapter under the profile '{}', whose base in few bits is not exported with a layer; allowed is 0",
         mtp.depths, settings.profile);
  RuntimeSettings own = settings;
  own.new_mtp = true;
  check_choice("mtp-keys", mtp.keys, mtp_keys());
  if (mtp.keys != "auto") own.mtp_shares_keys = mtp.keys == "shared";
  check_choice("mtp-state", mtp.state, mtp_states());
  if (mtp.state != "auto") own.mtp_normed_state = mtp.state == "normed";
  return own;
}

LocalMtp::LocalMtp(const MtpSettings& settings, const OpenedModel& opened, const TrainerOptions& options, const MtpInitial& initial, LocalTrainer& trainer)
    : settings_(settings), layer_(layer_of(opened, settings)), profile_(opened.runtime->profile), trainer_(trainer), runtime_(opened.runtime) {
  TrainerOptions own = options;
  own.ranks = opened.ranks;
  const MtpLoss loss = loss_named(settings.loss);
  const MtpTraining training{.depths = settings.depths, .train_indexer = has_indexer(layer_), .loss = loss};
  trainer_.with_model([&](const OnExecutor& on, TrainedModel& model) {
    const bool stored = opened.reader && opened.reader->has_mtp();
    const WeightImages masters = stored ? opened.reader->mtp_masters() : initial_weights(layer_.manifest(), initial.seed, initial.deviation);
    layer_trainer_.at(on) = model.make_layer(masters, training, own);
  });
}

LocalMtp::~LocalMtp() {
  trainer_.release([this](const OnExecutor& on) {
    made_.at(on) = {};
    layer_trainer_.at(on).reset();
  });
}

Json LocalMtp::take_step(const std::vector<PolicyDatum>& rollouts, const AdamParameters& adam) {
  std::vector<TrainSequence> batch;
  for (const PolicyDatum& d : rollouts) {
    TrainSequence& sequence = batch.emplace_back();
    sequence.tokens = d.tokens;
    sequence.targets = d.targets;
    for (const float weight : d.weights) sequence.weights.push_back(weight != 0 ? 1.0f : 0.0f);
  }
  return take_step(batch, adam);
}

std::shared_ptr<const WeightSet> LocalMtp::weights_for(const std::shared_ptr<Runtime>& runtime) {
  return trainer_.with_model([&](const OnExecutor& on, TrainedModel&) -> std::shared_ptr<const WeightSet> {
    TrainedLayer& trained = *layer_trainer_.at(on);
    const std::shared_ptr<const WeightSet> now = trained.weights();
    if (runtime == runtime_) return now;
    Made& made = made_.at(on);
    if (made.of != now) made = {make_weight_set(runtime->backend, layer_.manifest(), trained.master_images(), runtime->profile, now->version), now};
    return made.weights;
  });
}

Json LocalMtp::take_step(const std::vector<TrainSequence>& batch, const AdamParameters& adam) {
  return trainer_.with_model([&](const OnExecutor& on, TrainedModel&) {
    TrainedLayer& trained = *layer_trainer_.at(on);
    const MtpResult result = trained.forward_backward(batch, settings_.joint);
    if (!std::isfinite(result.loss)) fail(ErrorCode::numeric, "the loss of multi-token prediction is {}", result.loss);
    const OptimResult moved = trained.optim_step(adam);
    Json metrics = {{"mtp_loss", result.loss}};
    const auto of_depths = [&](const char* name, const std::vector<double>& values) {
      for (std::size_t k = 0; k < values.size(); ++k) metrics[fmt::format("{}_{}", name, k + 1)] = values[k];
    };
    if (trained.training().loss != MtpLoss::tv) of_depths("mtp_loss", result.of_depth);
    if (trained.training().loss != MtpLoss::ce) {
      metrics["mtp_variation"] = result.variation;
      of_depths("mtp_overlap", result.overlap);
    }
    metrics["mtp_index_loss"] = result.index_loss;
    metrics["mtp_gradient_norm"] = moved.gradient_norm;
    metrics["mtp_learning_rate"] = adam.learning_rate;
    return metrics;
  });
}

void LocalMtp::save(const RunDirectory& run, std::int64_t step, std::int64_t keep_last) {
  TrainerState state = trainer_.with_model([&](const OnExecutor& on, TrainedModel&) { return layer_trainer_.at(on)->state(); });
  if (std::exchange(saved_, state.step) != state.step) since_ = step;
  const Json position = {{"since_step", since_}, {"next_step", step}};
  save_training(run, std::move(state), layer_.manifest(), profile_.training_digest(false), position, keep_last == 0 ? 0 : static_cast<int>(keep_last) + 1,
                kPart);
}

void LocalMtp::restore(TrainingCheckpoint checkpoint, bool weights_alone) {
  trainer_.with_model([&](const OnExecutor& on, TrainedModel&) {
    TrainedLayer& trained = *layer_trainer_.at(on);
    if (weights_alone) trained.restore(fresh_state(trained.state(), std::move(checkpoint.masters)));
    else trained.restore(trainer_state(std::move(checkpoint)));
  });
}

std::optional<TrainingCheckpoint> LocalMtp::find(const fs::path& run, std::int64_t step) const {
  const std::vector<std::int64_t> steps = checkpoint_steps(layer_checkpoints(run));
  for (std::size_t i = steps.size(); i-- > 0;) {
    TrainingCheckpoint found = load_checkpoint(layer_checkpoints(run) / checkpoint_name(steps[i]), layer_.manifest());
    const std::int64_t last = found.position.value("next_step", std::int64_t{-1});
    if (found.position.value("since_step", last) <= step && step <= last) return found;
  }
  return {};
}

void LocalMtp::begin_or_go_on(const RunDirectory& run, std::int64_t step) {
  if (step > 0) {
    std::optional<TrainingCheckpoint> found = find(run.path(), step);
    if (!found)
      fail(ErrorCode::not_found, "'{}' has no checkpoint of step {}, and the model goes on at step {}; --fork NAME begins another run from the model's weights",
           layer_checkpoints(run.path()).string(), step, step);
    saved_ = found->step;
    since_ = found->position.value("since_step", step);
    return restore(std::move(*found), false);
  }
  const fs::path from = run.config().value("forked_from", std::string());  // RUN/checkpoints/step-N
  if (from.empty()) return;
  const Json position = read_json_file(from / "state.json").value("position", Json::object());
  if (std::optional<TrainingCheckpoint> found = find(from.parent_path().parent_path(), position.value("next_step", std::int64_t{-1})))
    restore(std::move(*found), true);
}

void LocalMtp::begin_from(const fs::path& run, std::int64_t step) {
  std::optional<TrainingCheckpoint> found = find(run, step);
  if (!found) fail(ErrorCode::not_found, "'{}' has no checkpoint of step {}", layer_checkpoints(run).string(), step);
  restore(std::move(*found), true);
}

WeightImages LocalMtp::images() {
  return trainer_.with_model([&](const OnExecutor& on, TrainedModel&) { return layer_trainer_.at(on)->master_images(); });
}

std::string LocalMtp::weights_sha256(const WeightImages& masters) const { return lockstep::weights_sha256(layer_.manifest(), masters); }

}  // namespace lockstep
