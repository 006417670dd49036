// The training API on a server: the protocols of both SDKs (api/tinker, api/fireworks). Any thread.
//   serve_openai(service, options, access, [&](Routes& routes) { add_training_routes(routes, trainers, shapes); });
#pragma once
#include <map>
#include <string>

#include "api/fireworks/fireworks_routes.h"
#include "api/server_state.h"
#include "api/tinker/tinker_routes.h"
#include "observe/prometheus.h"

namespace lockstep {

void add_training_routes(Routes& routes, const std::shared_ptr<TrainingService>& service, const ShapeCatalog& shapes, const TrainingRouteOptions& options = {});
// Its metrics for /metrics.
std::function<void(PrometheusText&)> training_metrics(const std::shared_ptr<TrainingService>& service);
// Rows of kept forwards by what became of them: kept, read, beside, dropped, compared; and their bytes. Empty where none are kept. Any thread.
std::map<std::string, std::int64_t> kept_row_figures(const TrainingService& service);

}  // namespace lockstep
