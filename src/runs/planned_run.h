// Opens or resumes a run whose steps follow from a plan (runs/sft_plan.h): makes its folder, checks which settings of a resumed run have changed, and
// loads the weights it starts from. One thread.
//   Run run = open_planned_run(settings, asked, plan, resolved, {"data"}); const Json position = begin_or_go_on(run, trainer);
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runs/local_trainer.h"
#include "runs/run.h"
#include "runs/sft_plan.h"

namespace lockstep {

// Adds the settings of a plan to `json`, as config.json has them.
void write_plan(const SftPlan& plan, Json& json);

// `resolved`: the run's settings under a plan; a resumed run must arrive at those that it was begun with, but for `free` (runs/run_settings.h). Its
// warm-up becomes the plan's (resumed_warmup).
Run open_planned_run(RunSettings settings, const SftAsked& asked, SftPlan& plan, const std::function<Json(const SftPlan&)>& resolved,
                     const std::vector<std::string>& free);

// Announces the run, and gives the trainer the weights of its newest checkpoint, or of the checkpoint that it was forked from. Returns the
// checkpoint's position; an empty object where nothing was loaded.
Json begin_or_go_on(const Run& run, LocalTrainer& trainer);

}  // namespace lockstep
