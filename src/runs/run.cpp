#include "runs/run.h"

#include "base/error.h"
#include "observe/progress.h"

namespace lockstep {

Run::Run(RunSettings settings) : settings_(std::move(settings)) {
  directory_.emplace(
      RunDirectory::open(settings_.runs, settings_.name, settings_.resolved, {.resume = settings_.resume, .resume_line = settings_.resume_line}));
  path_ = directory_->path();
  metrics_ = directory_->metrics_file();
  transcripts_ = directory_->transcripts_file();
}

Run::Run(RunSettings settings, const std::filesystem::path& folder)
    : settings_(std::move(settings)),
      path_(folder),
      metrics_(folder / ("metrics-" + settings_.name + ".jsonl")),
      transcripts_(folder / ("transcripts-" + settings_.name + ".jsonl")) {}

void Run::say(const std::string& sentence) const {
  if (settings_.say) settings_.say(sentence);
}

void Run::started() const {
  if (settings_.on_start) settings_.on_start();
}

void Run::save(RunWork& work) {
  if (!directory_ || saved_at_ == work.step()) return;
  work.save(*directory_, settings_.keep_last);
  saved_at_ = work.step();
}

bool Run::go(RunWork& work, const RunShape& shape) {
  if (directory_ && directory_->resumed() && work.step() > 0) saved_at_ = work.step();
  MetricsLog metrics = MetricsLog::resume(metrics_, work.step());
  std::optional<BoundedLog> transcripts;
  if (shape.transcripts) transcripts = BoundedLog::resume(transcripts_, work.step(), settings_.transcript_bytes);
  Progress progress({.label = shape.label, .total = shape.steps, .already_done = work.step(), .unit = "tokens", .quiet = settings_.quiet});
  try {
    while (!work.finished() && !settings_.stop.stopped()) {
      RunStep step = work.take_step();
      if (settings_.launch_start > 0) step.metrics["launch_start"] = settings_.launch_start;
      if (transcripts)
        for (const nlohmann::ordered_json& line : step.transcripts) transcripts->append(line);
      metrics.append(step.metrics);
      progress.note(step.note);
      progress.advance(1, static_cast<double>(step.tokens));
      if (step.save || (settings_.checkpoint_every > 0 && work.step() % settings_.checkpoint_every == 0)) save(work);
      if (settings_.on_step) settings_.on_step(work.step());
    }
  } catch (const Error& e) {
    if (e.code() != ErrorCode::cancelled || !settings_.stop.stopped()) throw;
  }
  progress.finish();
  save(work);
  work.finish_save();
  return work.finished();
}

}  // namespace lockstep
