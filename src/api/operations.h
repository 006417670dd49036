// Routes for operators: GET /healthz (the process lives), GET /readyz (the engine steps and the server accepts work; else 503), GET /metrics
// (Prometheus). Knows no socket. Any thread.
//   add_operation_routes(routes, service, state, "0.1.0");
#pragma once
#include "api/routes.h"
#include "api/server_state.h"
#include "serving/serving.h"

namespace lockstep {

void add_operation_routes(Routes& routes, std::shared_ptr<GenerationService> service, std::shared_ptr<ServerState> state, const std::string& build);

}  // namespace lockstep
