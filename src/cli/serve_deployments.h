// What a server deploys when it starts: what its command line says, and what was changed over HTTP before it was restarted (serving/deployment_record.h),
// which stands before that. Places of models, their memory, their services, the aliases. One thread.
//   CommandLineDeployments deployed(deploy, runtime, name); const auto deployments = deployed.open(service, opener);
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/deploy_options.h"
#include "cli/deployment_opener.h"
#include "serving/deployment_record.h"

namespace lockstep {

class CommandLineDeployments {
 public:
  // Without a model in `runtime` the first --deploy is the server's own: both are set to it. Errors: UsageError; those of ModelPlace and KeptDeployments.
  CommandLineDeployments(const DeploySettings& settings, RuntimeSettings& runtime, std::string& name);

  // What those beside the server's own take at least. Snapshots are pulled, once.
  std::int64_t least_bytes(const RuntimeSettings& runtime, const EngineOptions& engine);
  // The server's own, those beside it, the aliases. Errors: those of DeploymentOpener::open and Deployments.
  std::shared_ptr<Deployments> open(std::shared_ptr<GenerationService> own, const DeploymentOpener& opener);
  // Where later changes are kept; null: nowhere.
  std::shared_ptr<KeptDeployments> kept() const { return kept_; }

 private:
  struct Beside {
    std::string name, source;
    bool is_kept = false;  // made over HTTP
    std::string snapshot = {};
  };
  void take_kept();
  std::unique_ptr<const ModelPlace> place_of(const Beside& one) const;

  const std::shared_ptr<KeptDeployments> kept_;
  const std::string folder_;
  DeploymentRecord record_;
  std::vector<Beside> beside_;
  std::vector<TrafficRule> rules_;
  std::unique_ptr<const ModelPlace> own_place_;  // as long as the server; null: --model says it
  std::string own_source_;
  std::vector<std::unique_ptr<const ModelPlace>> places_;  // of those beside
};

}  // namespace lockstep
