#include "cli/serve_deployments.h"

#include <ctime>

namespace lockstep {

CommandLineDeployments::CommandLineDeployments(const DeploySettings& settings, RuntimeSettings& runtime, std::string& name)
    : beside_(deploy_sources(settings)), rules_(deploy_routes(settings)), own_source_(runtime.model) {
  if (!runtime.model.empty()) return;
  if (beside_.empty()) throw UsageError("--model is missing; `lockstep serve --help` shows an example");
  if (!name.empty()) throw UsageError(fmt::format("name is {}, allowed is to leave it out without --model: --deploy says the names", name));
  own_source_ = beside_.front().source;
  name = beside_.front().name;
  beside_.erase(beside_.begin());
  own_place_ = std::make_unique<const ModelPlace>(own_source_);
  runtime.model = own_place_->path();
}

std::int64_t CommandLineDeployments::least_bytes(const RuntimeSettings& runtime, const EngineOptions& engine) {
  std::int64_t bytes = 0;
  for (const DeploySource& one : beside_) {
    RuntimeSettings beside = runtime;
    beside.model = places_.emplace_back(std::make_unique<const ModelPlace>(one.source))->path();
    bytes += least_deployment_bytes(beside, engine);
  }
  return bytes;
}

std::shared_ptr<Deployments> CommandLineDeployments::open(std::shared_ptr<GenerationService> own, const DeploymentOpener& opener) {
  ModelDeployment first{.name = own->model().name(), .source = own_source_, .service = std::move(own)};
  first.created = static_cast<double>(std::time(nullptr));
  const auto deployments = std::make_shared<Deployments>(std::make_shared<TrafficTable>(), std::move(first));
  for (std::size_t i = 0; i < beside_.size(); ++i) {
    deployments->check_name(beside_[i].name);
    ModelDeployment one = opener.open(beside_[i].name, places_[i]->path());
    one.source = beside_[i].source;
    deployments->add(std::move(one));
  }
  for (const TrafficRule& rule : rules_) deployments->route(rule.alias, rule.shares);
  places_.clear();
  return deployments;
}

}  // namespace lockstep
