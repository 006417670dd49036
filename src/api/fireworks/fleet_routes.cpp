#include "api/fireworks/fleet_routes.h"

#include "api/errors.h"
#include "api/fireworks/fleet_waiter.h"
#include "api/fireworks/hot_load_ledger.h"
#include "api/json_fields.h"
#include "base/server_paths.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
ApiResponse fleet_answer(const nlohmann::ordered_json& json) {
  return {200, "application/json", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace), {}};
}

nlohmann::ordered_json fleet_json(FleetPort& fleet) {
  nlohmann::ordered_json replicas = nlohmann::ordered_json::array();
  for (const FleetMember& one : fleet.members()) {
    nlohmann::ordered_json seconds = nlohmann::ordered_json::object();
    for (const auto& [stage, time] : one.seconds) seconds[stage] = time;
    replicas.push_back({{"name", one.name},
                        {"url", one.url},
                        {"stage", one.lost ? "lost" : one.stage},
                        {"current", one.current},
                        {"target", one.target},
                        {"current_identity", one.current_identity},
                        {"target_identity", one.target_identity},
                        {"sequence", one.sequence},
                        {"lost", one.lost},
                        {"silent_seconds", one.silent_seconds},
                        {"downloaded_bytes", one.downloaded_bytes},
                        {"full_bytes", one.full_bytes},
                        {"seconds", seconds},
                        {"error", without_server_paths(one.error)}});
  }
  return {{"channel", without_server_paths(fleet.describe())}, {"replicas", std::move(replicas)}};
}
}  // namespace

nlohmann::ordered_json hot_load_json(const std::vector<FleetMember>& members) {
  nlohmann::ordered_json replicas = nlohmann::ordered_json::array();
  for (const FleetMember& one : members) {
    nlohmann::ordered_json state{{"stage", one.lost ? "lost" : one.stage}, {"target_snapshot_identity", one.target_identity}};
    if (!one.error.empty()) state["message"] = without_server_paths(one.error);
    replicas.push_back({{"readiness", one.serves}, {"current_snapshot_identity", one.current_identity}, {"loading_state", state}, {"name", one.name}});
  }
  return {{"replicas", std::move(replicas)}};
}

namespace {
// The snapshot that deltas were made against. How they are packed shows in the files; our own snapshots need no such field.
std::string previous_snapshot(const Json& value, const std::string& field) {
  require_object(value, field);
  std::string previous, format, checksum;
  JsonFields fields;
  fields.text("previous_snapshot_identity", &previous);
  fields.text("compression_format", &format);
  fields.text("checksum_format", &checksum);
  fields.read(value, field + ".");
  if (!previous.empty()) check_plain_name(field + ".previous_snapshot_identity", previous);
  return previous;
}

// As the deployment of the request's header says, and into its ledger. A fleet has one set of weights: a load without a deployment, or for one that
// another server has, is a load all the same.
void load_into_deployment(FleetWaiter& waiter, const std::shared_ptr<HostedDeployments>& deployments, const ApiRequest& request, const FleetDelivery& wanted,
                          const std::shared_ptr<Responder>& out) {
  const std::string name(request.header("fireworks-deployment"));
  std::optional<Deployment> deployment;
  if (deployments && !name.empty()) deployment = begin_hot_load(*deployments, request.owner, name, wanted.identity);
  if (!deployment) return waiter.load(wanted, out);
  const auto told = [deployments, owner = request.owner, name, identity = wanted.identity](const FleetProgress& progress) {
    end_hot_load(*deployments, owner, name, identity, progress);
  };
  try {
    waiter.load(wanted, out, fleet_transition(*deployment), told);
  } catch (const std::exception& e) {
    told({.ready = false, .ended = true, .error = e.what()});
    throw;
  }
}
}  // namespace

void add_fleet_routes(Routes& routes, const std::shared_ptr<FleetPort>& fleet, const std::shared_ptr<HostedDeployments>& deployments) {
  const auto waiter = std::make_shared<FleetWaiter>(fleet);
  RequestLanes& lanes = routes.lanes();
  const auto failed = [](const std::exception& e) { return error_response(e); };
  const std::string hot_load = "/hot_load/v1/models/hot_load";
  routes.add({"POST", hot_load, [=, &lanes](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                lanes.small.post(
                    std::move(request), out,
                    [=](ApiRequest& r) {
                      FleetDelivery wanted;
                      JsonFields fields;
                      fields.text("identity", &wanted.identity);
                      fields.harmless("reset_prompt_cache");  // cached prompts are found under the weights that made them, and no others
                      fields.custom("incremental_snapshot_metadata",
                                    [&](const Json& value, const std::string& field) { wanted.previous = previous_snapshot(value, field); });
                      fields.read(parse_object(r.body));
                      if (wanted.identity.empty()) fail_field("identity", "is missing");
                      check_plain_name("identity", wanted.identity);
                      load_into_deployment(*waiter, deployments, r, wanted, out);
                    },
                    failed);
              }});
  const auto tell = [=, &routes, &lanes](const std::string& path, std::function<nlohmann::ordered_json()> json) {
    routes.add({"GET", path, [=, &lanes](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                  lanes.small.post(
                      std::move(request), out, [=](ApiRequest&) { out->send(fleet_answer(json())); }, failed);
                }});
  };
  tell(hot_load, [waiter] { return hot_load_json(waiter->members()); });
  tell("/api/fleet", [fleet] { return fleet_json(*fleet); });
}

}  // namespace lockstep
