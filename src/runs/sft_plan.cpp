#include "runs/sft_plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lockstep {

double default_learning_rate(std::int64_t parameters, bool adapter, bool from_scratch) {
  if (from_scratch) return 1e-3;
  const double size = static_cast<double>(std::max<std::int64_t>(parameters, 1));
  const double full = std::clamp(2e-5 * std::sqrt(135e6 / size), 5e-6, 1e-3);
  const double rate = adapter ? std::max(10 * full, 1e-4) : full;
  return std::stod(fmt::format("{:.1e}", rate));  // two digits are all that a rule of thumb has
}

SftPlan plan_sft(const SftAsked& asked, std::int64_t sequences, std::int64_t parameters) {
  if (asked.steps > 0 && asked.epochs > 0) fail(ErrorCode::invalid_argument, "steps is {} and epochs is {}, allowed is one of them", asked.steps, asked.epochs);
  if (sequences == 0 && asked.steps == 0) fail(ErrorCode::invalid_argument, "an environment's problems have no end, so they have no epochs; --steps says how long the run is");
  SftPlan plan;
  // With little data at least eight steps an epoch: a few large ones would hardly learn.
  plan.batch = asked.batch > 0 ? asked.batch : sequences == 0 ? kDefaultBatch : std::clamp<std::int64_t>(sequences / 8, 1, kDefaultBatch);
  const std::int64_t epochs = asked.epochs > 0 ? asked.epochs : kDefaultEpochs;
  const std::int64_t steps = asked.steps > 0 ? asked.steps : (epochs * sequences + plan.batch - 1) / plan.batch;
  plan.schedule = {.kind = asked.schedule,
                   .peak = asked.learning_rate.value_or(default_learning_rate(parameters, asked.adapter, asked.from_scratch)),
                   .final_fraction = asked.final_fraction,
                   .warmup = std::min(asked.warmup.value_or(std::min<std::int64_t>(steps / 10, 100)), steps),
                   .steps = steps};
  return plan;
}

}  // namespace lockstep
