// Fireworks' routes on a replica, a server without a trainer, which answers for the whole fleet that it belongs to: hot load of weights.
// (Its completions are in model_completions.h, its deployments in deployment_routes.h.)
//  POST /hot_load/v1/models/hot_load {"identity"}: points the fleet at a snapshot (fleet_waiter.h); files of another trainer are taken in first
//  GET  /hot_load/v1/models/hot_load: all replicas, the slowest first
//  GET  /api/fleet: the same for the page, with bytes and seconds
// Any thread.
//   add_fleet_routes(routes, fleet);
#pragma once
#include <nlohmann/json.hpp>

#include "api/routes.h"
#include "serving/fleet_port.h"
#include "serving/hosted_deployment.h"

namespace lockstep {

// `deployments`: whose ledgers have the loads (deployment_routes.h); null: there are none.
void add_fleet_routes(Routes& routes, const std::shared_ptr<FleetPort>& fleet, const std::shared_ptr<HostedDeployments>& deployments = nullptr);

// GET's answer: {"replicas": [{readiness, current_snapshot_identity, loading_state: {stage, target_snapshot_identity}}]}.
nlohmann::ordered_json hot_load_json(const std::vector<FleetMember>& members);

}  // namespace lockstep
