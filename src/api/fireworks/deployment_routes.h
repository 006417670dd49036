// Routes of Fireworks' deployments: names under which models are sampled, ready at once, each with a ledger of its hot loads. The same for a trainer and for a
// server without one, whose differences are in DeploymentHost. Any thread.
//   add_deployment_routes(routes, replica_deployments(records, fleet, models));
//  POST   /v1/accounts/A/deployments?deploymentId=D, GET, and GET, PATCH, DELETE /v1/accounts/A/deployments/D
//  GET    /v1/accounts/A/deployments/D/ledger: its loads, the oldest first; DELETE empties it
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "api/tinker/training_routes.h"
#include "serving/deployments.h"
#include "serving/fleet_port.h"
#include "serving/hosted_deployment.h"

namespace lockstep {

struct DeploymentHost {
  std::shared_ptr<HostedDeployments> records;
  std::shared_ptr<FleetPort> fleet;  // whose replicas the ledger shows; null: there is none
  std::string base_model;            // of a deployment that names none
  // Error not_found: the server has no model of that name.
  std::function<void(const std::string& owner, const std::string& name)> check_base_model;
  bool chooses_guesses = false;  // whether requests of a deployment may be answered without speculative decoding
};
DeploymentHost trainer_deployments(const std::shared_ptr<TrainingService>& service);
DeploymentHost replica_deployments(std::shared_ptr<HostedDeployments> records, std::shared_ptr<FleetPort> fleet, std::shared_ptr<const Deployments> models);

void add_deployment_routes(TrainingRoutes& routes, const DeploymentHost& host);
// With GET /v1/accounts, which a trainer's other routes have.
void add_deployment_routes(Routes& routes, const DeploymentHost& host);

}  // namespace lockstep
