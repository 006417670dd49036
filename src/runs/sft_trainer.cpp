#include "runs/sft_trainer.h"

#include "base/error.h"
#include "checkpoint/model_export.h"
#include "runs/sft_run.h"
#include "runs/training_state.h"
#include "train/adapter_trainer.h"
#include "train/trainer.h"

namespace lockstep {
namespace {
TrainerOptions trainer_options(const OpenedModel& opened, const SftConfig& config) {
  TrainerOptions options;
  options.micro_batch = config.micro_batch;
  options.checkpoint_activations = config.checkpoint_activations;
  options.train_indexer = config.train_indexer && config.adapter_rank == 0;
  options.ranks = opened.ranks;
  options.optimizer_folder = optimizer_folder(config.optimizer_state, config.run.runs);
  return options;
}

class FullSftTrainer final : public SftTrainer {
 public:
  FullSftTrainer(OpenedModel& opened, const SftConfig& config)
      : opened_(opened), config_(config), trainer_(*opened.runtime, opened.loaded.masters, trainer_options(opened, config)) {
    opened.loaded.masters = {};  // the trainer's from here on
  }
  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& batch, const IndexTraining& index) override { return trainer_.forward_backward(batch, {}, index); }
  OptimResult optim_step(const AdamParameters& adam) override { return trainer_.optim_step(adam); }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data) override { return trainer_.score(data); }
  std::int64_t step() const override { return trainer_.step(); }
  void save(const RunDirectory& run, const Json& position, int keep_last) override {
    save_training(run, trainer_, manifest(), opened_.runtime->profile, position, keep_last);
  }
  Json restore(const RunDirectory& run) override { return restore_training(run, trainer_, manifest(), opened_.runtime->profile); }
  void begin_from(const std::filesystem::path& checkpoint) override { lockstep::begin_from(checkpoint, trainer_, manifest(), opened_.runtime->profile); }
  std::string weights_sha256() override { return lockstep::weights_sha256(manifest(), trainer_.master_images()); }
  void export_to(const std::filesystem::path& folder, Overwrite overwrite) override {
    SaveOptions options{.dtype = config_.export_dtype == "bf16" ? DType::bf16 : DType::f32, };
    if (opened_.tokenizer) options.tokenizer_files_from = config_.runtime.model;
    export_model_folder(folder, *opened_.loaded.model, trainer_.master_images(), options, overwrite);
  }

 private:
  const Manifest& manifest() const { return opened_.loaded.model->manifest(); }
  OpenedModel& opened_;
  const SftConfig& config_;
  Trainer trainer_;
};

class AdapterSftTrainer final : public SftTrainer {
 public:
  AdapterSftTrainer(OpenedModel& opened, const SftConfig& config)
      : opened_(opened),
        config_(config),
        layout_(std::make_shared<const AdapterLayout>(opened.loaded.model->manifest(), AdapterSettings{.rank = config.adapter_rank, .alpha = config.adapter_alpha})),
        trainer_(std::make_shared<FrozenBase>(*opened.runtime, serving_model(opened).weights, trainer_options(opened, config)), layout_,
                 initial_adapter(*layout_, config.init_seed)) {
    opened.loaded.masters = {};  // the frozen copy is all that is needed
  }
  ForwardBackwardResult forward_backward(const std::vector<TrainSequence>& batch, const IndexTraining&) override { return trainer_.forward_backward(batch, {}); }
  OptimResult optim_step(const AdamParameters& adam) override {
    AdamParameters own = adam;
    own.router_bias_rate = 0;  // the router is frozen with the rest
    return trainer_.optim_step(own);
  }
  std::vector<std::vector<float>> score(const std::vector<TrainSequence>& data) override { return trainer_.score(data); }
  std::int64_t step() const override { return trainer_.step(); }
  void save(const RunDirectory& run, const Json& position, int keep_last) override {
    save_training(run, trainer_.state(), layout_->manifest(), opened_.runtime->profile.training_digest(false), position, keep_last);
  }
  Json restore(const RunDirectory& run) override {
    auto checkpoint = load_training(run.path(), layout_->manifest(), opened_.runtime->profile, false);
    if (!checkpoint) return Json::object();
    Json position = checkpoint->position;
    trainer_.restore(trainer_state(std::move(*checkpoint)));
    return position;
  }
  void begin_from(const std::filesystem::path& checkpoint) override {
    trainer_.restore(fresh_state(trainer_.state(), forked_weights(checkpoint, layout_->manifest(), opened_.runtime->profile, false)));
  }
  std::string weights_sha256() override { return lockstep::weights_sha256(layout_->manifest(), trainer_.master_images()); }
  void export_to(const std::filesystem::path& folder, Overwrite overwrite) override {
    export_adapter_folder(folder, *layout_, trainer_.master_images(), config_.runtime.model, overwrite);
  }

 private:
  OpenedModel& opened_;
  const SftConfig& config_;
  std::shared_ptr<const AdapterLayout> layout_;
  AdapterTrainer trainer_;
};
}  // namespace

std::unique_ptr<SftTrainer> make_sft_trainer(OpenedModel& opened, const SftConfig& config) {
  if (config.adapter_rank == 0) return std::make_unique<FullSftTrainer>(opened, config);
  if (opened.ranks.size() > 1) fail(ErrorCode::unsupported, "ranks is {}, allowed with --adapter-rank is one rank", opened.ranks.text());
  if (config.from_scratch) fail(ErrorCode::invalid_argument, "adapter-rank is {} with --from-scratch; an adapter needs weights that know something", config.adapter_rank);
  return std::make_unique<AdapterSftTrainer>(opened, config);
}

}  // namespace lockstep
