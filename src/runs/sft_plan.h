// What a supervised run takes where its user did not say: steps, sequences a step, learning rate, warm-up. Values that learn from little
// data without forgetting what the model knew. Pure functions.
//   const SftPlan plan = plan_sft(asked, source.size(), parameters);
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "train/schedule.h"

namespace lockstep {

inline constexpr std::int64_t kDefaultEpochs = 3, kDefaultBatch = 32;

struct SftAsked {
  std::int64_t epochs = 0, steps = 0, batch = 0;  // 0: not said
  std::optional<double> learning_rate;
  std::optional<std::int64_t> warmup;
  std::string schedule = "constant";
  double final_fraction = 0;
  bool adapter = false, from_scratch = false;
};

struct SftPlan {
  Schedule schedule;
  std::int64_t batch = 0;
};

// `sequences` of an epoch, 0: without end; then the steps must be said (invalid_argument). `parameters`: of the whole model. The warm-up is
// never longer than the run.
SftPlan plan_sft(const SftAsked& asked, std::int64_t sequences, std::int64_t parameters);

// Of all weights: 2e-5 with 135 million of them, falling with the root of the size, from 1e-3 to 5e-6. Of an adapter ten times that, at
// least 1e-4. Of random weights 1e-3.
double default_learning_rate(std::int64_t parameters, bool adapter, bool from_scratch);

}  // namespace lockstep
