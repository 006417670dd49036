// Defaults of a supervised run for what its user did not set: steps, sequences a step, learning rate, warm-up. Chosen to learn from little
// data without forgetting what the model knew. Pure functions.
//   const SftPlan plan = plan_sft(asked, source.size(), parameters);
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "model/manifest.h"
#include "train/schedule.h"

namespace lockstep {

inline constexpr std::int64_t kDefaultEpochs = 3, kDefaultBatch = 32;

struct SftAsked {
  std::int64_t epochs = 0, steps = 0, batch = 0;  // 0: not set
  std::optional<double> learning_rate;
  std::optional<std::int64_t> warmup;
  std::string schedule = "constant";
  double final_fraction = 0;
  bool adapter = false, from_scratch = false;
  std::string optimizer = "adamw";
};

struct SftPlan {
  Schedule schedule;
  std::int64_t batch = 0;
};

// As many as a model has, with what fills the panels of its matrices: the size that a default learning rate goes by.
std::int64_t parameters_of(const Manifest& manifest);

// `sequences` of an epoch, 0: without end; then the steps must be said (invalid_argument). `parameters`: of the whole model. The warm-up is
// never longer than the run.
SftPlan plan_sft(const SftAsked& asked, std::int64_t sequences, std::int64_t parameters);

// Full-parameter: 2e-5 for 135 million weights, proportional to 1 / sqrt(size), between 5e-6 and 1e-3. An adapter: ten times that, at
// least 1e-4. From random weights: 1e-3. Of an optimizer that leaves some parameters to AdamW (OptimizerFamily::adamw_share): the rate at which
// those get AdamW's for all weights.
double default_learning_rate(std::int64_t parameters, const SftAsked& asked);

}  // namespace lockstep
