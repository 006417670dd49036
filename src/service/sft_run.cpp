#include "service/sft_run.h"

#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "base/seconds.h"
#include "base/signals.h"
#include "checkpoint/run_directory.h"
#include "checkpoint/training_checkpoint.h"
#include "observe/bounded_log.h"
#include "observe/metrics_log.h"
#include "observe/progress.h"
#include "service/sft_transcript.h"
#include "service/training_state.h"
#include "train/trainer.h"

namespace lockstep {

SftSummary run_sft(const SftConfig& config, const std::function<std::unique_ptr<SftSource>(const OpenedModel&)>& make_source, bool resume) {
  check_trainable(profile_by_name(config.runtime.profile));
  OpenedModel opened = config.from_scratch ? open_untrained_model(config.runtime, config.init_seed, config.init_deviation) : open_model(config.runtime);
  const Model& model = *opened.loaded.model;
  const std::unique_ptr<SftSource> source = make_source(opened);
  TrainerOptions options;
  options.micro_batch = config.micro_batch;
  options.checkpoint_activations = config.checkpoint_activations;
  options.train_indexer = config.train_indexer;
  options.ranks = opened.ranks;
  options.optimizer_folder = optimizer_folder(config.optimizer_state, config.runs);
  Trainer trainer(*opened.runtime, opened.loaded.masters, options);
  opened.loaded.masters = {};  // the trainer's from here on

  RunDirectory run = RunDirectory::open(config.runs, config.name, config.resolved, {resume, config.resume_line});
  if (config.on_start) config.on_start();
  if (resume) {
    const Json before = run.config();
    for (const auto& [key, value] : config.resolved.items())
      if (!before.contains(key) || before.at(key) != value)
        log_warning("the run was begun with another configuration", {{"key", key}, {"was", before.contains(key) ? before.at(key).dump() : "absent"}, {"is", value.dump()}});
  }
  if (resume) restore_training(run, trainer, model.manifest(), opened.runtime->profile);
  MetricsLog metrics = MetricsLog::resume(run.metrics_file(), trainer.step());
  std::optional<BoundedLog> transcripts;
  if (opened.tokenizer && config.transcripts > 0) transcripts = BoundedLog::resume(run.transcripts_file(), trainer.step(), config.transcript_bytes);
  install_interrupt_handlers();

  SftSummary summary;
  const auto begin = std::chrono::steady_clock::now();
  Progress progress({.label = "sft", .total = config.schedule.steps, .already_done = trainer.step(), .unit = "tokens", .quiet = config.quiet});
  const auto save = [&] {
    save_training(run, trainer, model.manifest(), opened.runtime->profile, {{"next_step", trainer.step()}, {"seed", config.seed}}, config.keep_last);
  };
  std::int64_t saved_at = resume ? trainer.step() : -1;
  while (trainer.step() < config.schedule.steps && !interrupted()) {
    const std::int64_t step = trainer.step();
    const auto step_begin = std::chrono::steady_clock::now();
    IndexTraining index;
    index.dense_attention = step < config.sparse_from;
    index.index_loss = config.train_indexer && model.has_indexer() && step >= config.index_from;
    AdamParameters adam;
    adam.learning_rate = learning_rate(config.schedule, step);
    adam.beta1 = config.beta1;
    adam.beta2 = config.beta2;
    adam.eps = config.eps;
    adam.weight_decay = config.weight_decay;
    adam.max_norm = config.max_norm;
    adam.router_bias_rate = config.router_bias_rate;
    const std::vector<TrainSequence> batch = source->batch(step, config.batch);
    const ForwardBackwardResult result = trainer.forward_backward(batch, {}, index);
    const OptimResult optim = trainer.optim_step(adam);
    summary.tokens += result.rows;
    summary.loss = result.loss;
    summary.index_loss = result.index_loss;
    if (transcripts && (step % config.transcripts_every == 0 || trainer.step() == config.schedule.steps))
      for (const auto& line : sft_transcripts(batch, result, *opened.tokenizer, trainer.step(), config.transcripts)) transcripts->append(line);
    const double seconds = seconds_since(step_begin);
    metrics.append({{"step", trainer.step()},
                    {"loss", result.loss},
                    {"index_loss", result.index_loss},
                    {"gradient_norm", optim.gradient_norm},
                    {"learning_rate", adam.learning_rate},
                    {"dense_attention", index.dense_attention},
                    {"tokens", result.rows},
                    {"trained_tokens", result.scored},
                    {"tokens_per_second", static_cast<double>(result.rows) / seconds}});
    progress.note(fmt::format("loss {:.4f}{}", result.loss, index.index_loss ? fmt::format(", index {:.4f}", result.index_loss) : ""));
    progress.advance(1, static_cast<double>(result.rows));
    if (config.checkpoint_every > 0 && trainer.step() % config.checkpoint_every == 0) save(), saved_at = trainer.step();
  }
  progress.finish();
  if (saved_at != trainer.step()) save();
  summary.steps = trainer.step();
  summary.seconds = seconds_since(begin);
  summary.interrupted = trainer.step() < config.schedule.steps;
  if (summary.interrupted) return summary;
  const WeightImages masters = trainer.master_images();
  summary.weights_sha256 = weights_sha256(model.manifest(), masters);
  const std::filesystem::path target = config.export_to.empty() ? run.export_folder() : std::filesystem::path(config.export_to);
  SaveOptions save_options;
  save_options.dtype = config.export_dtype == "bf16" ? DType::bf16 : DType::f32;
  if (opened.tokenizer) save_options.tokenizer_files_from = config.runtime.model;
  save_options.overwrite = true;
  save_model_folder(target, model, masters, save_options);
  summary.exported = target.string();
  return summary;
}

}  // namespace lockstep
