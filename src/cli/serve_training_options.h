// Option rows of `lockstep serve --training`, and their values as TrainingServiceOptions. One thread.
//   ServeTrainingSettings trained; add_serve_training_options(table, trained);   TrainingService service(base, generation, service_options(trained));
#pragma once
#include <cmath>

#include "cli/options.h"
#include "http/training_server.h"
#include "serving/keep_forward.h"

namespace lockstep {

struct ServeTrainingSettings {
  KeepForwardSettings keep_forward;
  TrainingServiceOptions options;  // some rows set its members directly; the members below set the others, from their defaults
  bool training = false, separate_passes = false;
  std::string state = options.state.string(), custom_loss = "server";
  std::vector<std::string> aliases, shape_files;
  std::int64_t token_seconds = 0;
  std::int64_t metadata_kilobytes = options.metadata_bytes >> 10, checkpoint_megabytes = options.checkpoint_bytes >> 20;
  std::int64_t gap_seconds = std::llround(options.gap_seconds);
  std::int64_t session_days = std::llround(options.session_seconds / 86400), sampler_hours = std::llround(options.sampler_seconds / 3600);
  std::int64_t session_idle_minutes = std::llround(options.session_idle_seconds / 60), gradient_megabytes = options.gradient_bytes >> 20;
  std::int64_t sampler_megabytes = options.sampler_bytes >> 20, reuse_megabytes = options.reuse_bytes >> 20;
};
void add_serve_training_options(OptionTable& table, ServeTrainingSettings& settings);
// The options that the rows describe; 0 days, hours or minutes mean no limit.
TrainingServiceOptions service_options(const ServeTrainingSettings& settings);

}  // namespace lockstep
