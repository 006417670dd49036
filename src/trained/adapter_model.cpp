#include <mutex>

#include "base/entropy.h"
#include "base/error.h"
#include "model/adapter_initial.h"
#include "parallel/processes.h"
#include "train/adapter_trainer.h"
#include "train/open_batch.h"
#include "train/rank_record.h"
#include "trained/led_model.h"
#include "trained/same_weights.h"
#include "trained/trained_layer.h"
#include "trained/trainer_shares.h"

namespace lockstep {
namespace {

class AddPass : public SharedPass {
 public:
  void run(std::vector<Piece>& pieces) override;
};

class ScorePass : public SharedPass {
 public:
  explicit ScorePass(FrozenBase& base) : base_(base) {}
  void run(std::vector<Piece>& pieces) override;

 private:
  FrozenBase& base_;
};

}  // namespace

// A base's frozen weights, the same in each process, and the passes over them that models can share.
struct FrozenPasses {
  explicit FrozenPasses(const TrainedBase& of) : base(made(of)), score(*base) {}
  static std::shared_ptr<FrozenBase> made(const TrainedBase& of) {
    Runtime& runtime = *of.opened.runtime;
    const std::shared_ptr<RankRuntimes> ranks = rank_runtimes(of);
    check_same_weights(ranks->ranks(), of.opened.model->manifest(), [&] { return weight_hashes(runtime.backend, *of.weights); });
    return std::make_shared<FrozenBase>(runtime, of.weights, of.options, ranks);
  }
  std::shared_ptr<FrozenBase> base;
  AddPass add;
  ScorePass score;
};

namespace {

// What stands over the base's frozen weights, and so can share a pass with others there.
class OverBase : public TrainedModel {
 public:
  OverBase(const TrainedBase& base, const TrainedSettings& settings)
      : base_(base), passes_(frozen_passes(base)), frozen_(*passes_->base), kept_owner_(settings.kept_owner) {}
  SharedPass* shared_pass(bool forward) const override {
    if (forward) return &passes_->score;
    return &passes_->add;
  }
  std::vector<RankUse> rank_uses() const override { return lockstep::rank_uses(rank_runtimes(base_)->ranks()); }
  using Piece = SharedPass::Piece;
  virtual AdapterTrainer* trainer() { return nullptr; }  // null: the base alone
  std::uint64_t kept_owner() const { return kept_owner_; }
  // The two ends of add(), around the pass. check() throws.
  virtual void check(const Piece&) {}
  virtual const LossOptions* loss() const { return nullptr; }
  virtual void put(const Piece&, ForwardBackwardResult&&) {}

 protected:
  const TrainedBase& base_;
  std::shared_ptr<FrozenPasses> passes_;
  FrozenBase& frozen_;
  const std::uint64_t kept_owner_;  // TrainedSettings'
};

void ScorePass::run(std::vector<Piece>& pieces) {
  AdapterTrainer::Failures failures;
  std::vector<AdapterTrainer::ScoreJob> jobs;
  for (const Piece& piece : pieces) {
    auto& model = static_cast<OverBase&>(*piece.model);
    jobs.push_back({model.trainer(), piece.data, model.kept_owner()});
  }
  auto rows = AdapterTrainer::score_together(base_, jobs, &failures);
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].logprobs = std::move(rows[i]), pieces[i].failure = failures[i];
}

void AddPass::run(std::vector<Piece>& pieces) {
  AdapterTrainer::Failures failures;
  std::vector<AdapterTrainer::Job> jobs;
  std::vector<Piece*> own;  // of the jobs
  for (Piece& piece : pieces) {
    auto& model = static_cast<OverBase&>(*piece.model);
    try {
      model.check(piece);
    } catch (const Error& e) {
      piece.failure = e;
      continue;
    }
    jobs.push_back({model.trainer(), piece.data, *model.loss()});
    own.push_back(&piece);
  }
  std::vector<ForwardBackwardResult> results = AdapterTrainer::forward_backward_together(jobs, &failures);
  for (std::size_t i = 0; i < own.size(); ++i) {
    own[i]->failure = failures[i];
    if (!failures[i]) static_cast<OverBase*>(own[i]->model)->put(*own[i], std::move(results[i]));
  }
}

void check_adapter_index(const IndexTraining& index) {
  if (index.index_loss || index.dense_attention)
    fail(ErrorCode::unsupported, "phases of the indexer with an adapter: the base is frozen, its indexer too; allowed are all parameters");
}

// An adapter over the base's frozen weights, which all adapters share.
class AdapterModel : public OverBase {
 public:
  AdapterModel(const TrainedBase& base, const TrainedSettings& settings)
      : OverBase(base, settings),
        layout_(adapter_layout(base, settings)),
        trainer_(passes_->base, layout_, adapter_images(*layout_, settings), optimizer_family(settings), settings.kept_owner) {}

  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& data, const LossOptions& loss, const IndexTraining& index) override {
    check_adapter_index(index);
    return trainer_.forward_backward(data, loss);
  }
  void begin(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index) override {
    check_adapter_index(index);
    loss_ = loss;
    batch_.emplace(plan, loss, index);
  }
  void add(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override {
    batch_->check(places, piece);
    ForwardBackwardResult result = trainer_.forward_backward(piece, loss_);
    batch_->put(places, piece, std::move(result), {});
  }
  ForwardBackwardResult finish() override {
    ForwardBackwardResult result = batch_->finish();
    batch_.reset();
    return result;
  }
  void drop() override {
    batch_.reset();
    trainer_.abandon_gradients();
  }
  Unfinished unfinished() const override { return {batch_ || trainer_.has_gradients(), batch_.has_value()}; }
  ParkedBatch save_gradients(const std::filesystem::path& folder) override {
    trainer_.save_gradients(folder);
    return batch_ ? std::make_shared<Begun>(Begun{loss_, *std::exchange(batch_, std::nullopt)}) : nullptr;
  }
  void load_gradients(const std::filesystem::path& folder, const ParkedBatch& batch) override {
    trainer_.load_gradients(folder);
    if (!batch) return;
    auto& begun = *static_cast<Begun*>(batch.get());
    loss_ = begun.loss;
    batch_ = std::move(begun.batch);
  }
  AdapterTrainer* trainer() override { return &trainer_; }
  void check(const Piece& piece) override { batch_->check(*piece.places, *piece.data); }
  const LossOptions* loss() const override { return &loss_; }
  void put(const Piece& piece, ForwardBackwardResult&& result) override { batch_->put(*piece.places, *piece.data, std::move(result), {}); }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override { return trainer_.score(piece); }
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override {
    trainer_.evaluate(batch, places, piece);
  }
  OptimResult optim_step(const AdamParameters& adam) override { return shares_.wait(), trainer_.optim_step(adam); }
  std::int64_t steps() const override { return trainer_.step(); }
  SamplerWeights sampler_weights() override { return {base_.weights, trainer_.weights()}; }
  std::unique_ptr<TrainedLayer> make_layer(const WeightImages& masters, const MtpTraining& training, const TrainerOptions& options) override {
    const auto share = [this](int local) -> RankWeights { return {frozen_.rank(local).weights(), trainer_.rank_weights(local)}; };
    return make_layer_here(base_, {share, [this] { drop(); }}, masters, training, options);
  }
  const Manifest& manifest() const override { return layout_->manifest(); }

  std::vector<float> state_image(StatePart part, std::size_t parameter) override { return trainer_.state().image(part, parameter); }
  WeightImages master_images() override { return trainer_.state().masters(); }
  void restore(const TrainerState& state) override { shares_.wait(), trainer_.restore(state); }
  StateShares& shares() override { return shares_; }
  const AdapterLayout* adapter() const override { return layout_.get(); }
  ForwardCounts work() const override { return frozen_.work(); }

 private:
  struct Begun {
    LossOptions loss;
    OpenBatch batch;
  };
  std::shared_ptr<const AdapterLayout> layout_;
  AdapterTrainer trainer_;
  TrainerShares<AdapterTrainer> shares_{trainer_, frozen_.ranks(), layout_->manifest()};
  LossOptions loss_;
  std::optional<OpenBatch> batch_;
};

// The base itself, forward only: what a reference policy says.
class FrozenModel : public OverBase {
 public:
  using OverBase::OverBase;
  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>&, const LossOptions&, const IndexTraining&) override { refuse(); }
  void begin(const BatchPlan&, const LossOptions&, const IndexTraining&) override { refuse(); }
  void add(const std::vector<std::size_t>&, const std::vector<TrainSequence>&) override { refuse(); }
  ForwardBackwardResult finish() override { refuse(); }
  void drop() override {}
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& piece) override { return frozen_.score(piece, kept_owner_); }
  void evaluate(OpenBatch& batch, const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) override {
    frozen_.evaluate(batch, places, piece, nullptr, kept_owner_);
  }
  OptimResult optim_step(const AdamParameters&) override { refuse(); }
  std::int64_t steps() const override { return 0; }
  SamplerWeights sampler_weights() override { return {base_.weights, nullptr}; }
  std::unique_ptr<TrainedLayer> make_layer(const WeightImages&, const MtpTraining&, const TrainerOptions&) override { refuse(); }
  WeightImages master_images() override { refuse(); }
  std::vector<float> state_image(StatePart, std::size_t) override { refuse(); }
  void restore(const TrainerState&) override { refuse(); }
  StateShares& shares() override { refuse(); }
  const Manifest& manifest() const override { return base_.opened.model->manifest(); }

 private:
  [[noreturn]] static void refuse() { fail(ErrorCode::unsupported, "the model is base_only: allowed is forward alone"); }
};

}  // namespace

TrainerState state_of(TrainedModel& model) {
  const auto images = [&](StatePart part) {
    WeightImages all;
    for (std::size_t i = 0; i < model.manifest().parameters().size(); ++i) all.push_back(model.state_image(part, i));
    return all;
  };
  return {model.master_images(), images(StatePart::first_moment), images(StatePart::second_moment), model.steps()};
}

WeightImages adapter_images(const AdapterLayout& layout, const TrainedSettings& settings) {
  if (settings.init_method == "nora") return nora_adapter(layout, *settings.seed);
  if (settings.init_method == "kaiming") return initial_adapter(layout, *settings.seed);
  const std::vector<std::string> methods{"kaiming", "nora"};
  fail(ErrorCode::invalid_argument, "init_method is '{}', allowed are {}{}", settings.init_method, fmt::join(methods, " and "),
       did_you_mean(settings.init_method, methods));
}

std::shared_ptr<const AdapterLayout> adapter_layout(const TrainedBase& base, const TrainedSettings& settings) {
  const AdapterSettings adapter{
      .rank = settings.rank, .alpha = settings.alpha, .attention = settings.train_attn, .mlp = settings.train_mlp, .unembedding = settings.train_unembed};
  return std::make_shared<const AdapterLayout>(base.opened.model->manifest(), adapter);
}

std::shared_ptr<FrozenPasses> frozen_passes(const TrainedBase& base) {
  if (!base.frozen) base.frozen = std::make_shared<FrozenPasses>(base);
  return base.frozen;
}

std::shared_ptr<RankRuntimes> rank_runtimes(const TrainedBase& base) {
  if (!base.ranks) base.ranks = std::make_shared<RankRuntimes>(*base.opened.runtime, base.options.ranks, make_ranks(base.options.ranks));
  return base.ranks;
}

std::unique_ptr<TrainedModel> make_trained_model_here(const TrainedBase& base, const TrainedSettings& settings) {
  if (settings.base_only) return std::make_unique<FrozenModel>(base, settings);
  if (settings.rank > 0) return std::make_unique<AdapterModel>(base, settings);
  return make_full_model(base, settings);
}

std::unique_ptr<TrainedModel> make_trained_model(const TrainedBase& base, const TrainedSettings& settings) {
  if (ProcessMail* mail = joined_mail()) return make_led_model(base, settings, *mail);
  return make_trained_model_here(base, settings);
}

}  // namespace lockstep
