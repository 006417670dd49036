// Hot load: a deployment takes a snapshot while it is sampled. The answer comes when the weights are in place.
#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/fireworks/fleet_routes.h"
#include "api/fireworks/fleet_waiter.h"
#include "api/fireworks/hot_load_ledger.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {

// The one that the header names. Error not_found: there is none, so it has no replica either.
Deployment deployment_in_header(const TrainingCall& call) {
  const std::string name = call.text_header("fireworks-deployment");
  if (name.empty()) fail_value("the header fireworks-deployment", "is missing");
  const auto found = call.service.control().deployments.find(call.owner, name);
  if (!found)
    throw RequestError(ErrorCode::not_found, "fireworks-deployment",
                       fmt::format("there is no deployment '{}'; POST /v1/accounts/ACCOUNT/deployments makes one", shown(name)), 404);
  return *found;
}

// The snapshot that a deployment's checkpoint is; empty: it is none, or gone.
std::string snapshot_of(const TrainingCall& call, const Deployment& d) {
  Checkpoints& checkpoints = call.service.checkpoints();
  return checkpoints.contains(d.checkpoint) ? checkpoints.find(call.owner, d.checkpoint).snapshot : std::string();
}

// This server samples the deployment too; where replicas follow it, it is ready when they are.
void load_snapshot(const TrainingCall& call, FleetWaiter* waiter) {
  const std::string identity = required_text(call.json(), "identity");
  check_plain_name("identity", identity);
  const Deployment loaded = call.service.control().hot_load(call.owner, deployment_in_header(call).name, identity, call.text_header("fireworks-model"));
  if (!waiter || !loaded.failed.empty()) return call.answer({{"identity", identity}});
  // By its id: another model's checkpoint may have the channel of this name.
  waiter->load({.identity = identity, .snapshot = snapshot_of(call, loaded)}, call.out, fleet_transition(loaded));
}

void hot_load_status(const TrainingCall& call) {
  const Deployment d = deployment_in_header(call);
  if (const auto& fleet = call.service.options().fleet; fleet && d.failed.empty()) {
    std::vector<FleetMember> members = fleet->members();
    const std::string snapshot = snapshot_of(call, d);
    for (FleetMember& one : members) {
      if (!snapshot.empty() && one.current == snapshot) one.current_identity = d.identity;
      if (!snapshot.empty() && one.target == snapshot) one.target_identity = d.identity;
    }
    if (!members.empty()) return call.answer(hot_load_json(members));
  }
  TrainingJson state = d.failed.empty() ? TrainingJson{{"stage", "ready"}, {"target_snapshot_identity", d.identity}}
                                        : TrainingJson{{"stage", "error"}, {"target_snapshot_identity", d.failed}, {"message", d.failure}};
  TrainingJson replica{{"readiness", true}, {"current_snapshot_identity", d.identity}, {"loading_state", state}};
  call.answer({{"replicas", {replica}}});
}
}  // namespace

void add_hot_load_routes(TrainingRoutes& routes, const std::shared_ptr<FleetPort>& fleet) {
  const std::shared_ptr<FleetWaiter> waiter = fleet ? std::make_shared<FleetWaiter>(fleet) : nullptr;
  const std::string path = "/hot_load/v1/models/hot_load";
  routes.add_at_root("POST", path, known_fields({"identity"}, {"reset_prompt_cache", "incremental_snapshot_metadata"}),
                     [waiter](const TrainingCall& call) { load_snapshot(call, waiter.get()); });
  routes.add_at_root("GET", path, hot_load_status);
}

}  // namespace lockstep
