#include "runs/planned_run.h"

#include "runs/run_settings.h"

namespace lockstep {

void write_plan(const SftPlan& plan, Json& json) {
  json["steps"] = fmt::format("{}", plan.schedule.steps);
  json["batch"] = fmt::format("{}", plan.batch);
  json["learning_rate"] = fmt::format("{}", plan.schedule.peak);
  json["warmup"] = fmt::format("{}", plan.schedule.warmup);
}

Run open_planned_run(RunSettings settings, const SftAsked& asked, SftPlan& plan, const std::function<Json(const SftPlan&)>& resolved,
                     const std::vector<std::string>& free) {
  settings.resolved = resolved(plan);
  Run run(settings);
  if (!run.directory().resumed()) return run;
  const Json before = run.directory().config();
  const bool earlier_version = settings.resolved.contains("format") && !before.contains("format");
  if (!earlier_version) plan.schedule.warmup = resumed_warmup(before, plan.schedule.warmup, asked.warmup.has_value());
  check_resumed_settings(before, resolved(plan), {.free = free, .unsaid = settings.unsaid, .only_known = earlier_version});
  return run;
}

Json begin_or_go_on(const Run& run, LocalTrainer& trainer) {
  run.started();
  const Json position = run.directory().resumed() ? trainer.load(run.directory()) : Json::object();
  if (const std::string from = run.directory().config().value("forked_from", ""); trainer.step() == 0 && !from.empty()) trainer.begin_from(from);
  return position;
}

}  // namespace lockstep
