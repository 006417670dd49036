// Routes to manage a server's models: list, add and remove deployments; set aliases and roll them back; read gates. With API keys, changes are for
// administrators' keys only. Knows no socket. Any thread.
// - GET, POST /v1/deployments; DELETE /v1/deployments/{name}
// - GET /v1/aliases; PUT, DELETE /v1/aliases/{alias}; POST /v1/aliases/{alias}/rollback
// - GET /v1/gates; GET /v1/gates/{gate}
//   add_model_deployment_routes(routes, deployments, {.open = opener, .keys = ring, .administrators = {"ann"}});
#pragma once
#include <functional>

#include "api/openai/alias_gate.h"
#include "api/routes.h"
#include "observe/prometheus.h"
#include "serving/deployment_record.h"
#include "serving/deployments.h"

namespace lockstep {

struct ModelDeploymentRouteOptions {
  // Loads the model that a client names (`source`) for a deployment called `name`; null: no model can be loaded while the server runs.
  std::function<ModelDeployment(const std::string& name, const std::string& source)> open;
  std::shared_ptr<const KeyRing> keys;                  // null: anyone who reaches the server may change its models
  std::vector<std::string> administrators;              // names of keys
  std::shared_ptr<StoredDeployments> stored = nullptr;  // stores a change before it is answered; null: changes end with the process
  std::shared_ptr<AliasGate> gate;                      // over the same deployments
};

void add_model_deployment_routes(Routes& routes, std::shared_ptr<Deployments> deployments, ModelDeploymentRouteOptions options);

// lockstep_deployment_* of each for a scrape.
void append_deployment_metrics(const Deployments& deployments, PrometheusText& text);

}  // namespace lockstep
