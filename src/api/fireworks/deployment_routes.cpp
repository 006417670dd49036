// Deployments: names under which models are sampled. One is ready at once.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"
#include "base/server_paths.h"
#include "serving/fleet_port.h"

namespace lockstep {
namespace {
constexpr const char* kDeployments = "deployments";

TrainingJson deployment_json(const Deployment& d) {
  TrainingJson json{{"name", d.name},
                    {"state", "READY"},
                    {"baseModel", d.base_model},
                    {"description", d.description},
                    {"createTime", iso_time(d.created)},
                    {"minReplicaCount", d.min_replicas},
                    {"maxReplicaCount", d.max_replicas},
                    {"deploymentShape", d.shape.empty() ? fmt::format("accounts/{}/deploymentShapes/local/versions/1", kTrainingAccount) : d.shape},
                    {"hotLoadTrainerJob", d.trainer_job}};
  if (!d.transition_type.empty()) json["hotLoadTransitionType"] = d.transition_type;
  return json;
}

Deployment deployment_at(const TrainingCall& call) {
  const std::string name = resource_name(call, kDeployments, path_segment(call, "deployment"));
  const auto found = call.service.control().deployments.find(call.owner, name);
  if (!found) throw RequestError(ErrorCode::not_found, "deployment", fmt::format("there is no deployment '{}'", shown(name)), 404);
  return *found;
}

// A replica is shown in the newest load of the snapshot that it is moving to.
TrainingJson replica_rows(const std::vector<FleetMember>& members, const std::string& identity) {
  TrainingJson rows = TrainingJson::array();
  for (const FleetMember& one : members) {
    if (one.target_identity != identity) continue;
    TrainingJson row{{"name", one.name}, {"readiness", one.serves && one.stage == "ready"}, {"stage", one.lost ? "lost" : one.stage}};
    for (const auto& [stage, seconds] : one.seconds)
      if (stage == "ready" && one.stage == "ready") row["readyTime"] = iso_time(unix_now() - seconds - one.silent_seconds);
    if (!one.error.empty()) row["error"] = without_server_paths(one.error);
    rows.push_back(std::move(row));
  }
  return rows;
}

// The snapshots that were loaded into the deployment, the oldest first.
void tell_ledger(const TrainingCall& call) {
  const Deployment d = deployment_at(call);
  const auto& fleet = call.service.options().fleet;
  const std::vector<FleetMember> members = fleet ? fleet->members() : std::vector<FleetMember>();
  std::set<std::string> told;
  TrainingJson entries = TrainingJson::array();
  for (auto one = d.ledger.rbegin(); one != d.ledger.rend(); ++one) {
    TrainingJson entry{{"identity", one->identity},
                       {"state", one->failure.empty() ? "READY" : "FAILED"},
                       {"createTime", iso_time(one->began)},
                       {"endTime", iso_time(one->ended)}};
    if (one->failure.empty() || !one->type.empty()) entry["type"] = one->type == "delta" ? "DELTA" : "FULL";
    if (!one->failure.empty()) entry["error"] = one->failure;
    if (told.insert(one->identity).second && !members.empty()) entry["replicas"] = replica_rows(members, one->identity);
    entries.push_back(std::move(entry));
  }
  std::reverse(entries.begin(), entries.end());
  call.answer({{"name", d.name + "/ledger"}, {"entries", entries}});
}

void take_fields(const TrainingJson& json, Deployment& d) {
  d.trainer_job = text_field(json, "hotLoadTrainerJob", d.trainer_job);
  d.transition_type = text_field(json, "hotLoadTransitionType", d.transition_type);
  d.description = text_field(json, "description", d.description);
  d.min_replicas = integer_field(json, "minReplicaCount", d.min_replicas);
  d.max_replicas = integer_field(json, "maxReplicaCount", d.max_replicas);
}

// With ?updateMask=description,min_replica_count,...: these fields of the body alone; one that the body lacks becomes "" or 0.
TrainingJson masked(const TrainingCall& call, const TrainingJson& json) {
  const std::optional<std::string> mask = call.request.query_value("updateMask");
  if (!mask) return json;
  const std::map<std::string, std::pair<std::string, TrainingJson>> known = {{"hot_load_trainer_job", {"hotLoadTrainerJob", ""}},
                                                                             {"hot_load_transition_type", {"hotLoadTransitionType", ""}},
                                                                             {"description", {"description", ""}},
                                                                             {"min_replica_count", {"minReplicaCount", 0}},
                                                                             {"max_replica_count", {"maxReplicaCount", 0}}};
  TrainingJson out = TrainingJson::object();
  std::istringstream paths(*mask);
  for (std::string path; std::getline(paths, path, ',');) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const auto& row) { return row.first == path || row.second.first == path; });
    if (found == known.end()) {
      std::vector<std::string> names;
      for (const auto& [name, row] : known) names.push_back(name);
      fail_value("updateMask", fmt::format("names '{}', allowed are {}{}", shown(path), fmt::join(names, ", "), did_you_mean(path, names)));
    }
    const auto& [name, empty] = found->second;
    out[name] = json.contains(name) && !(json[name].is_null() && empty.is_string()) ? json[name] : empty;
  }
  return out;
}

void create_deployment(const TrainingCall& call) {
  const TrainingJson json = call.json();
  const std::string id = call.request.query_value("deploymentId").value_or("");
  if (id.empty()) fail_value("deploymentId", "is missing");
  const bool guesses = !query_flag(call, "disableSpeculativeDecoding");
  const std::string name = resource_name(call, kDeployments, id), base_model = text_field(json, "baseModel", call.service.base().name);
  check_base_model(call, base_model);
  StoredRecords<Deployment>& deployments = call.service.control().deployments;
  if (deployments.find(call.owner, name)) return answer_conflict(call, fmt::format("the deployment '{}' exists already", name));
  call.answer(deployment_json(deployments.change(call.owner, name, [&](Deployment& d) {
    d.base_model = base_model;
    d.shape = text_field(json, "deploymentShape");
    d.guesses = guesses;
    take_fields(json, d);
  })));
}
}  // namespace

void add_deployment_routes(TrainingRoutes& routes) {
  const std::string all = fmt::format("/v1/accounts/{{account}}/{}", kDeployments), one = all + "/{deployment}";
  const auto fields = [](std::initializer_list<const char*> more) {
    JsonFields known = known_fields({"hotLoadTrainerJob", "hotLoadTransitionType", "description", "minReplicaCount", "maxReplicaCount"},
                                    {"forTraining", "placement", "acceleratorType", "annotations", "preemptible"});
    known.taken(more);
    known.harmless("enableHotLoad", {true});
    known.harmless("hotLoadBucketType", {"FW_HOSTED"});
    known.only("extraArgs", {Json::array()});
    known.only("extraValues", {Json::object()});
    return known;
  };
  routes.add_at_root("POST", all, fields({"baseModel", "deploymentShape"}), create_deployment,
                     known_query({"deploymentId", "disableSpeculativeDecoding"}, {"skipShapeValidation", "acceptShapelessRisk"}));
  routes.add_at_root(
      "GET", all,
      [](const TrainingCall& call) {
        TrainingJson rows = TrainingJson::array();
        for (const Deployment& d : call.service.control().deployments.all(call.owner)) rows.push_back(deployment_json(d));
        answer_page(call, kDeployments, rows);
      },
      page_query());
  routes.add_at_root("GET", one, [](const TrainingCall& call) { call.answer(deployment_json(deployment_at(call))); });
  routes.add_at_root("PATCH", one, fields({}),
                     [](const TrainingCall& call) {
                       const TrainingJson json = masked(call, call.json());
                       call.answer(deployment_json(
                           call.service.control().deployments.change(call.owner, deployment_at(call).name, [&](Deployment& d) { take_fields(json, d); })));
                     },
                     {"updateMask"});
  routes.add_at_root(
      "DELETE", one,
      [](const TrainingCall& call) {
        call.service.control().deployments.remove(call.owner, deployment_at(call).name);
        call.answer(TrainingJson::object());
      },
      known_query({}, {"ignoreChecks", "hard"}));
  routes.add_at_root("GET", one + "/ledger", tell_ledger);
  routes.add_at_root("DELETE", one + "/ledger", [](const TrainingCall& call) {
    call.service.control().deployments.change(call.owner, deployment_at(call).name, [](Deployment& d) { d.ledger.clear(); });
    call.answer(TrainingJson::object());
  });
}

}  // namespace lockstep
