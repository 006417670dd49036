// Hot load: a deployment takes a snapshot while it is sampled. The answer comes when the weights are in place.
#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"

namespace lockstep {
namespace {

std::string deployment_of(const TrainingCall& call) {
  std::string name = call.text_header("fireworks-deployment");
  if (name.empty()) fail_value("the header fireworks-deployment", "is missing");
  return name;
}

void load_snapshot(const TrainingCall& call) {
  const std::string identity = required_text(call.json(), "identity");
  call.service.control().hot_load(call.owner, deployment_of(call), identity, call.text_header("fireworks-model"));
  call.answer({{"identity", identity}});
}

void hot_load_status(const TrainingCall& call) {
  const Deployment d = call.service.control().deployments.find(call.owner, deployment_of(call)).value_or(Deployment{});
  TrainingJson state = d.failed.empty() ? TrainingJson{{"stage", "ready"}, {"target_snapshot_identity", d.identity}}
                                        : TrainingJson{{"stage", "error"}, {"target_snapshot_identity", d.failed}, {"message", d.failure}};
  TrainingJson replica{{"readiness", true}, {"current_snapshot_identity", d.identity}, {"loading_state", state}};
  call.answer({{"replicas", {replica}}});
}
}  // namespace

void add_hot_load_routes(TrainingRoutes& routes) {
  const std::string path = "/hot_load/v1/models/hot_load";
  routes.add_at_root("POST", path, load_snapshot);
  routes.add_at_root("GET", path, hot_load_status);
}

}  // namespace lockstep
