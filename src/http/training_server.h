// The training API on a server: what both SDKs speak (api/tinker, api/fireworks). Any thread.
//   serve_openai(service, options, access, [&](Routes& routes) { add_training_routes(routes, trainers); });
#pragma once
#include "api/operations.h"
#include "api/tinker/tinker_routes.h"

namespace lockstep {

void add_training_routes(Routes& routes, const std::shared_ptr<TrainingService>& service);
// What /metrics says of it.
MoreMetrics training_metrics(const std::shared_ptr<TrainingService>& service);

}  // namespace lockstep
