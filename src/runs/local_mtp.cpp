#include "runs/local_mtp.h"

#include <cmath>

#include "base/error.h"
#include "parallel/layout.h"
#include "runs/training_state.h"
#include "train/mtp_trainer.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
constexpr const char kPart[] = "mtp";  // of a run's folder

static_assert(MtpSettings::kMostDepths == MtpTraining::kMostDepths);

fs::path layer_checkpoint(const fs::path& run, const std::string& name) { return run / kPart / "checkpoints" / name; }

const MtpLayer& layer_of(const OpenedModel& opened, const MtpSettings& settings) {
  if (!opened.model->mtp())
    fail(ErrorCode::unsupported, "mtp-depths is {}, and the model '{}' of type {} has no layer of multi-token prediction to train; allowed is 0",
         settings.depths, opened.name, opened.model->family());
  return *opened.model->mtp();
}

MtpLoss loss_named(const std::string& name) {
  const std::vector<std::string> names = mtp_losses();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<MtpLoss>(i);
  fail(ErrorCode::invalid_argument, "mtp-loss is '{}', allowed are {}{}", name, fmt::join(names, ", "), did_you_mean(name, names));
}

bool has_indexer(const MtpLayer& layer) {
  for (const Parameter& p : layer.manifest().parameters())
    if (p.indexer) return true;
  return false;
}
}  // namespace

std::vector<std::string> mtp_losses() { return {"ce", "tv", "both"}; }

RuntimeSettings settings_with_mtp(const RuntimeSettings& settings, const MtpSettings& mtp, std::int64_t adapter_rank) {
  if (mtp.depths == 0) return settings;
  if (adapter_rank > 0) fail(ErrorCode::unsupported, "mtp-depths is {} beside an adapter, whose export holds no such layer; allowed is 0", mtp.depths);
  if (rank_layout(settings.ranks).size() > 1) fail(ErrorCode::unsupported, "ranks is {}, allowed with --mtp-depths is one rank", settings.ranks);
  RuntimeSettings own = settings;
  own.new_mtp = true;
  return own;
}

LocalMtp::LocalMtp(const MtpSettings& settings, const OpenedModel& opened, const TrainerOptions& options, const MtpInitial& initial, LocalTrainer& trainer)
    : layer_(layer_of(opened, settings)), profile_(opened.runtime->profile), trainer_(trainer) {
  TrainerOptions own = options;
  own.ranks = opened.ranks;
  const MtpLoss loss = loss_named(settings.loss);
  const MtpTraining training{.depths = settings.depths, .train_indexer = has_indexer(layer_), .loss = loss};
  trainer_.with_model([&](TrainedModel&) {
    const bool stored = opened.reader && opened.reader->has_mtp();
    const WeightImages masters = stored ? opened.reader->mtp_masters() : initial_weights(layer_.manifest(), initial.seed, initial.deviation);
    layer_trainer_ = std::make_unique<MtpTrainer>(*opened.runtime, masters, training, own);
  });
}

LocalMtp::~LocalMtp() {
  try {  // its buffers are freed on the device's thread
    trainer_.with_model([this](TrainedModel&) { layer_trainer_.reset(); });
  } catch (const std::exception&) {  // the executor stopped first: no other thread uses the device
    layer_trainer_.reset();
  }
}

Json LocalMtp::take_step(const std::vector<TrainSequence>& batch, const AdamParameters& adam) {
  return trainer_.with_model([&](TrainedModel& model) {
    const MtpResult result = [&] {
      const SamplerWeights now = model.sampler_weights();
      return layer_trainer_->forward_backward(*now.weights, batch);
    }();
    if (!std::isfinite(result.loss)) fail(ErrorCode::numeric, "the loss of multi-token prediction is {}", result.loss);
    const OptimResult moved = layer_trainer_->optim_step(adam);
    Json metrics = {{"mtp_loss", result.loss}};
    const auto of_depths = [&](const char* name, const std::vector<double>& values) {
      for (std::size_t k = 0; k < values.size(); ++k) metrics[fmt::format("{}_{}", name, k + 1)] = values[k];
    };
    if (layer_trainer_->training().loss != MtpLoss::tv) of_depths("mtp_loss", result.of_depth);
    if (layer_trainer_->training().loss != MtpLoss::ce) {
      metrics["mtp_variation"] = result.variation;
      of_depths("mtp_overlap", result.overlap);
    }
    metrics["mtp_index_loss"] = result.index_loss;
    metrics["mtp_gradient_norm"] = moved.gradient_norm;
    metrics["mtp_learning_rate"] = adam.learning_rate;
    return metrics;
  });
}

void LocalMtp::save(const RunDirectory& run, std::int64_t keep_last) {
  TrainerState state = trainer_.with_model([&](TrainedModel&) { return layer_trainer_->state(); });
  const Json position = {{"next_step", state.step}};
  save_training(run, std::move(state), layer_.manifest(), profile_.training_digest(false), position, keep_last == 0 ? 0 : static_cast<int>(keep_last) + 1,
                kPart);
}

void LocalMtp::restore(const fs::path& checkpoint, bool weights_alone) {
  TrainingCheckpoint loaded = load_checkpoint(checkpoint, layer_.manifest());
  trainer_.with_model([&](TrainedModel&) {
    if (weights_alone) layer_trainer_->restore(fresh_state(layer_trainer_->state(), std::move(loaded.masters)));
    else layer_trainer_->restore(trainer_state(std::move(loaded)));
  });
}

void LocalMtp::begin_or_go_on(const RunDirectory& run, std::int64_t step) {
  if (step > 0) {
    const fs::path checkpoint = layer_checkpoint(run.path(), checkpoint_name(step));
    if (!fs::exists(checkpoint))
      fail(ErrorCode::not_found, "'{}' is not there, and the model goes on at step {}; --fork NAME begins another run from the model's weights",
           checkpoint.string(), step);
    return restore(checkpoint, false);
  }
  const fs::path from = run.config().value("forked_from", std::string());  // RUN/checkpoints/step-N
  if (from.empty()) return;
  const fs::path checkpoint = layer_checkpoint(from.parent_path().parent_path(), from.filename().string());
  if (fs::exists(checkpoint)) restore(checkpoint, true);
}

void LocalMtp::begin_from(const fs::path& run, std::int64_t step) { restore(layer_checkpoint(run, checkpoint_name(step)), true); }

WeightImages LocalMtp::images() {
  return trainer_.with_model([&](TrainedModel&) { return layer_trainer_->master_images(); });
}

std::string LocalMtp::weights_sha256(const WeightImages& masters) const { return lockstep::weights_sha256(layer_.manifest(), masters); }

}  // namespace lockstep
