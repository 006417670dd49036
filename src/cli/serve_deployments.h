// Deploys the models of a server when it starts: those of its command line, with the changes made over HTTP before a restart
// (serving/deployment_record.h). Finds their folders, claims memory, starts their services, and sets the aliases. One thread.
//   CommandLineDeployments deployed(deploy, runtime, name); const auto deployments = deployed.open(service, Follows::no, opener);
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/openai/model_deployment_routes.h"
#include "cli/deploy_options.h"
#include "cli/deployment_opener.h"
#include "serving/version_gate.h"

namespace lockstep {

class CommandLineDeployments {
 public:
  // Without a model in `runtime` the first --deploy is the server's own: both are set to it. Errors: UsageError; those of ModelPlace and StoredDeployments.
  CommandLineDeployments(const DeploySettings& settings, RuntimeSettings& runtime, std::string& name);

  // The least memory of the models beside the server's own, bytes. Pulls their snapshots, once.
  std::int64_t least_bytes(const RuntimeSettings& runtime, const EngineOptions& engine);
  // Deploys the server's own model (`own_follows`: how it follows a channel) and the others, and sets the aliases. Errors: those of
  // DeploymentOpener::open and Deployments.
  std::shared_ptr<Deployments> open(std::shared_ptr<GenerationService> own, Follows own_follows, const DeploymentOpener& opener);
  // The gate that new weights of a deployment of open() have to pass.
  std::shared_ptr<VersionGate> gate_of(const std::string& deployment) const;
  // Start and stop following for all deployments with a channel, as replicas of a server at that address.
  void start_followers(const std::string& url, std::int64_t port);
  void stop_followers();
  // Options of the routes that change deployments while the server runs; without an opener they can load none.
  ModelDeploymentRouteOptions route_options(std::shared_ptr<const KeyRing> keys, const std::shared_ptr<const DeploymentOpener>& opener) const;

 private:
  struct Beside {
    std::string name, source;
    bool is_stored = false;  // made over HTTP
    std::string snapshot = {};
    bool follows = false;
  };
  void take_stored();
  std::shared_ptr<const ModelPlace> place_of(const Beside& one) const;

  const std::shared_ptr<StoredDeployments> stored_;  // null: changes are not stored
  const std::shared_ptr<GateReports> reports_;
  const std::string folder_;
  const std::vector<std::string> administrators_;
  const SleepSettings sleep_;
  DeploymentRecord record_;
  std::shared_ptr<AliasGate> gate_;  // over the deployments of open()
  std::vector<Beside> beside_;
  std::vector<TrafficRule> rules_;
  std::unique_ptr<const ModelPlace> own_place_;  // as long as the server; null: --model says it
  std::string own_source_;
  std::vector<std::shared_ptr<const ModelPlace>> places_;  // of the other models until they are read; of those that follow as long as the server
  struct Following {
    std::string name, place;
    Followed followed;
    std::shared_ptr<GenerationService> service;
  };
  std::vector<Following> following_;  // those that have not started yet
  std::vector<std::unique_ptr<Follower>> followers_;
};

}  // namespace lockstep
