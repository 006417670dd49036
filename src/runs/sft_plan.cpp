#include "runs/sft_plan.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "train/optimizers/optimizer.h"

namespace lockstep {

std::int64_t parameters_of(const Manifest& manifest) {
  std::int64_t count = 0;
  for (const Parameter& parameter : manifest.parameters()) count += parameter.size();
  return count;
}

double default_learning_rate(std::int64_t parameters, const SftAsked& asked) {
  const double size = static_cast<double>(std::max<std::int64_t>(parameters, 1));
  const double full = asked.from_scratch ? 1e-3 : std::clamp(2e-5 * std::sqrt(135e6 / size), 5e-6, 1e-3);
  const OptimizerFamily* family = optimizer_named(asked.optimizer);
  const double share = family ? family->adamw_share : 1;  // an unknown name is refused where the trainer is made
  const double rate = share < 1 ? full / share : asked.adapter ? std::max(10 * full, 1e-4) : full;
  return std::stod(fmt::format("{:.1e}", rate));  // a rule of thumb is worth two digits
}

SftPlan plan_sft(const SftAsked& asked, std::int64_t sequences, std::int64_t parameters) {
  if (asked.steps > 0 && asked.epochs > 0) fail(ErrorCode::invalid_argument, "steps is {} and epochs is {}, allowed is one of them", asked.steps, asked.epochs);
  if (sequences == 0 && asked.steps == 0)
    fail(ErrorCode::invalid_argument, "an environment's problems have no end, so they have no epochs; --steps says how long the run is");
  SftPlan plan;
  // With little data at least eight steps per epoch: a few large steps would hardly learn.
  plan.batch = asked.batch > 0 ? asked.batch : sequences == 0 ? kDefaultBatch : std::clamp<std::int64_t>(sequences / 8, 1, kDefaultBatch);
  const std::int64_t epochs = asked.epochs > 0 ? asked.epochs : kDefaultEpochs;
  const std::int64_t steps = asked.steps > 0 ? asked.steps : (epochs * sequences + plan.batch - 1) / plan.batch;
  plan.schedule = {.kind = asked.schedule,
                   .peak = asked.learning_rate.value_or(default_learning_rate(parameters, asked)),
                   .final_fraction = asked.final_fraction,
                   .warmup = std::min(asked.warmup.value_or(std::min<std::int64_t>(steps / 10, 100)), steps),
                   .steps = steps};
  return plan;
}

}  // namespace lockstep
