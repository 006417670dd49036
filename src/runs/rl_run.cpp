#include "runs/rl_run.h"

#include "base/error.h"
#include "runs/run_settings.h"
#include "runs/training_state.h"
#include "train/schedule.h"

namespace lockstep {
namespace {
RlRunConfig checked(RlRunConfig config) {
  check_run_name(config.name);
  if (config.export_dtype != "bf16" && config.export_dtype != "f32")
    fail(ErrorCode::invalid_argument, "export_dtype is '{}', allowed are bf16, f32", config.export_dtype);
  config.stack.optimizer_folder = optimizer_folder(config.optimizer_state, config.runs);
  return config;
}
}  // namespace

// The model first: a folder that cannot be read must not leave a run behind.
RlRun::RlRun(const RlRunConfig& config, bool resume)
    : config_(checked(config)),
      stack_(config_.stack),
      directory_(RunDirectory::open(config.runs, config.name, config.resolved, {.resume = resume, .resume_line = config.resume_line})) {
  if (directory_.resumed()) {
    check_resumed_settings(directory_.config(), config.resolved, {});
    step_ = stack_.trainer().with_trainer([&](Trainer& trainer) {
      restore_training(directory_, trainer, stack_.model().manifest(), stack_.profile());
      return trainer.step();
    });
    stack_.trainer().publish();
    if (step_ > 0) saved_at_ = step_;
  }
  if (const std::string from = directory_.config().value("forked_from", ""); step_ == 0 && !from.empty()) {
    stack_.trainer().with_trainer([&](Trainer& trainer) { begin_from(from, trainer, stack_.model().manifest(), stack_.profile()); return true; });
    stack_.trainer().publish();
  }
  metrics_ = std::make_unique<MetricsLog>(MetricsLog::resume(directory_.metrics_file(), step_));
  transcripts_ = std::make_unique<BoundedLog>(BoundedLog::resume(directory_.transcripts_file(), step_, config_.transcript_bytes));
}

void RlRun::log_transcripts(const std::vector<nlohmann::ordered_json>& transcripts) {
  for (const nlohmann::ordered_json& transcript : transcripts) transcripts_->append(transcript);
}

void RlRun::finished_step(const nlohmann::ordered_json& metrics) {
  metrics_->append(metrics);
  ++step_;
  if (config_.checkpoint_every > 0 && step_ % config_.checkpoint_every == 0) save();
}

void RlRun::save() {
  if (saved_at_ == step_) return;
  stack_.trainer().with_trainer([&](Trainer& trainer) {
    save_training(directory_, trainer, stack_.model().manifest(), stack_.profile(), {{"next_step", step_}}, static_cast<int>(config_.keep_last));
  });
  saved_at_ = step_;
}

std::filesystem::path RlRun::export_model() {
  stack_.export_model(directory_.export_folder(), config_.export_dtype == "bf16" ? DType::bf16 : DType::f32);
  return directory_.export_folder();
}

std::vector<std::string> schedule_names() { return {"constant", "linear", "cosine"}; }

double scheduled_rate(const std::string& schedule, double peak, std::int64_t warmup, std::int64_t steps, std::int64_t step) {
  return learning_rate({.kind = schedule, .peak = peak, .warmup = warmup, .steps = steps}, step);
}

}  // namespace lockstep
