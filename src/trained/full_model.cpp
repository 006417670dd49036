#include "base/choice.h"
#include "base/give_way.h"
#include "trained/led_model.h"
#include "trained/same_weights.h"
#include "trained/trained_layer.h"
#include "trained/trainer_shares.h"

namespace lockstep {
namespace {

struct FreedInParts {
  WeightImages images;
  ~FreedInParts() { free_in_parts(images); }
};

// The masters that each process has read, when they are the same.
const WeightImages& compared(const TrainedBase& base, const WeightImages& masters) {
  check_same_weights(rank_runtimes(base)->ranks(), base.opened.model->manifest(), [&] { return weight_hashes(masters); });
  return masters;
}

// All parameters move.
class FullModel : public TrainedModel {
 public:
  FullModel(const TrainedBase& base, const TrainedSettings& settings)
      : base_(base),
        trainer_(*base.opened.runtime, compared(base, FreedInParts{base.opened.masters()}.images), options_of(base, settings), rank_runtimes(base)) {}

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) override {
    return trainer_.forward_backward(data, loss, index);
  }
  void begin(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index) override { trainer_.begin_batch(plan, loss, index); }
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override { trainer_.add(places, piece); }
  ForwardBackwardResult finish() override { return trainer_.finish_batch(); }
  void drop() override { trainer_.abandon_gradients(); }
  Unfinished unfinished() const override { return {trainer_.has_gradients(), trainer_.in_batch()}; }
  ParkedBatch save_gradients(const std::filesystem::path& folder) override {
    std::optional<Trainer::Batch> batch = trainer_.save_gradients(folder);
    return batch ? std::make_shared<Trainer::Batch>(std::move(*batch)) : nullptr;
  }
  void load_gradients(const std::filesystem::path& folder, const ParkedBatch& batch) override {
    if (batch) trainer_.load_gradients(folder, std::move(*static_cast<Trainer::Batch*>(batch.get())));
    else trainer_.load_gradients(folder);
  }
  bool accumulates(std::size_t piece, std::size_t sequences) const override { return trainer_.needs_accumulators(piece == sequences); }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override { return trainer_.score(piece); }
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override {
    trainer_.evaluate(batch, places, piece);
  }
  OptimResult optim_step(const AdamParameters& adam) override { return shares_.wait(), trainer_.optim_step(adam); }
  std::int64_t steps() const override { return trainer_.step(); }
  SamplerWeights sampler_weights() override { return {trainer_.weights()}; }
  std::unique_ptr<TrainedLayer> make_layer(const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options) override {
    const auto share = [this](int local) -> RankWeights {
      RankTrainer& part = *trainer_.ranks().parts()[static_cast<std::size_t>(local)];
      return {part.weights(), nullptr, [&part] { return part.more_gradients(); }};
    };
    return make_layer_here(base_, {share, [this] { drop(); }}, masters, training, options);
  }
  WeightImages master_images() override { return trainer_.state().masters(); }
  void restore(const TrainerState& state) override { shares_.wait(), trainer_.restore(state); }
  std::vector<float> state_image(StatePart part, std::size_t parameter) override { return trainer_.state().image(part, parameter); }
  bool has_state(StatePart part, std::size_t parameter) const override { return trainer_.state().has(part, parameter); }
  StateShares& shares() override { return shares_; }
  const Manifest& manifest() const override { return base_.opened.model->manifest(); }
  ForwardCounts work() const override { return trainer_.ranks().work(); }
  std::vector<RankUse> rank_uses() const override { return lockstep::rank_uses(ranks()); }

 private:
  Ranks& ranks() const { return rank_runtimes(base_)->ranks(); }
  static TrainerOptions options_of(const TrainedBase& base, const TrainedSettings& settings) {
    TrainerOptions options = base.options;
    options.optimizer = optimizer_family(settings);
    options.kept_owner = settings.kept_owner;
    return options;
  }
  const TrainedBase& base_;
  Trainer trainer_;
  TrainerShares<Trainer> shares_{trainer_, ranks(), manifest()};
};

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerFamily& family : optimizer_families()) names.emplace_back(family.name);
  return names;
}

OptimizerFamily optimizer_family(const TrainedSettings& settings) {
  if (const OptimizerFamily* family = optimizer_named(settings.optimizer)) return *family;
  fail_choice("optimizer_config.type", settings.optimizer, optimizer_names(), ErrorCode::unsupported);
}

std::unique_ptr<TrainedModel> make_full_model(const TrainedBase& base, const TrainedSettings& settings) {
  check_trainable(base.opened.runtime->profile);
  return std::make_unique<FullModel>(base, settings);
}

}  // namespace lockstep
