// Hot load: a deployment takes a snapshot while it is sampled. The answer comes when the weights are in place.
#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"

namespace lockstep {
namespace {

std::string deployment_of(const TrainingCall& call) {
  std::string name(call.request.header("fireworks-deployment"));
  if (name.empty()) fail_value("the header fireworks-deployment", "is missing");
  return name;
}

void load_snapshot(const TrainingCall& call, Deployments& deployments) {
  const std::string name = deployment_of(call), identity = required_text(call.json(), "identity");
  if (const Deployment now = deployments.at(call.owner, name); now.identity == identity && now.failed.empty()) return call.answer({{"identity", identity}});
  try {
    const SamplerWeights weights = call.service.weights_of_checkpoint(call.owner, identity);
    deployments.change(call.owner, name, [&](Deployment& d) {
      d.base_model = call.request.header("fireworks-model");
      d.identity = identity;
      d.weights = weights;
      d.failed.clear();
    });
  } catch (const Error& e) {
    deployments.change(call.owner, name, [&](Deployment& d) { d.failed = identity, d.failure = e.what(); });
  }
  call.answer({{"identity", identity}});
}

void status(const TrainingCall& call, Deployments& deployments) {
  const Deployment d = deployments.at(call.owner, deployment_of(call));
  TrainingJson state = d.failed.empty() ? TrainingJson{{"stage", "ready"}, {"target_snapshot_identity", d.identity}}
                                        : TrainingJson{{"stage", "error"}, {"target_snapshot_identity", d.failed}, {"message", d.failure}};
  TrainingJson replica{{"readiness", true}, {"current_snapshot_identity", d.identity}, {"loading_state", state}};
  call.answer({{"replicas", {replica}}});
}
}  // namespace

void add_hot_load_routes(TrainingRoutes& routes, const std::shared_ptr<Deployments>& deployments) {
  const std::string path = "/hot_load/v1/models/hot_load";
  routes.add_at_root("POST", path, [deployments](const TrainingCall& call) { load_snapshot(call, *deployments); });
  routes.add_at_root("GET", path, [deployments](const TrainingCall& call) { status(call, *deployments); });
}

}  // namespace lockstep
