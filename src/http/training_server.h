// The training API on a server: the protocols of both SDKs (api/tinker, api/fireworks). Any thread.
//   serve_openai(service, options, access, [&](Routes& routes) { add_training_routes(routes, trainers, shapes); });
#pragma once
#include "api/fireworks/fireworks_routes.h"
#include "api/server_state.h"
#include "api/tinker/tinker_routes.h"
#include "observe/prometheus.h"

namespace lockstep {

void add_training_routes(Routes& routes, const std::shared_ptr<TrainingService>& service, const ShapeCatalog& shapes, const TrainingRouteOptions& options = {});
// Its metrics for /metrics.
std::function<void(PrometheusText&)> training_metrics(const std::shared_ptr<TrainingService>& service);

}  // namespace lockstep
