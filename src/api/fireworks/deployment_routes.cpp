#include "api/fireworks/deployment_routes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"
#include "base/choice.h"
#include "base/server_paths.h"
#include "host/training_records.h"

namespace lockstep {
namespace {
constexpr const char* kDeployments = "deployments";

struct DeploymentCall {
  ApiRequest& request;
  std::shared_ptr<Responder> out;
  std::string owner;
  TrainingJson body;
  const DeploymentHost& host;

  void answer(const TrainingJson& json, int status = 200) const {
    out->send({status, "application/json", json.dump(-1, ' ', false, TrainingJson::error_handler_t::replace), {}});
  }
};

// A trainer's, which are among the records of its control plane.
class TrainerDeployments : public HostedDeployments {
 public:
  explicit TrainerDeployments(std::shared_ptr<TrainingService> service) : service_(std::move(service)) {}
  std::optional<Deployment> find(const std::string& owner, const std::string& name) override { return records().find(owner, name); }
  std::vector<Deployment> all(const std::string& owner) override { return records().all(owner); }
  void remove(const std::string& owner, const std::string& name) override { records().remove(owner, name); }

 protected:
  std::optional<Deployment> changed(const std::string& owner, const std::string& name, const Change& what, bool makes) override {
    if (makes) return records().change(owner, name, what);
    return records().change_existing(owner, name, what);
  }

 private:
  StoredRecords<Deployment>& records() { return service_->control().deployments; }
  const std::shared_ptr<TrainingService> service_;
};

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

std::string name_in_path(const DeploymentCall& call) { return resource_name(call.request, kDeployments, path_segment(call.request, "deployment")); }

Deployment present(const std::optional<Deployment>& found, const std::string& name) {
  if (!found) throw RequestError(ErrorCode::not_found, "deployment", fmt::format("there is no deployment '{}'", shown(name)), 404);
  return *found;
}

Deployment deployment_at(const DeploymentCall& call) {
  const std::string name = name_in_path(call);
  return present(call.host.records->find(call.owner, name), name);
}

// In one look-up: what is deleted in this moment is not made again.
Deployment changed_at(const DeploymentCall& call, const HostedDeployments::Change& change) {
  const std::string name = name_in_path(call);
  return present(call.host.records->change_existing(call.owner, name, change), name);
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

bool all_have(const std::vector<FleetMember>& members, const std::string& identity) {
  const auto is_live = [](const FleetMember& one) { return !one.lost; };
  const auto has_it = [&](const FleetMember& one) { return one.lost || (one.stage == "ready" && one.current_identity == identity); };
  return std::any_of(members.begin(), members.end(), is_live) && std::all_of(members.begin(), members.end(), has_it);
}

// Of an entry that is not ended nobody waited long enough to be told: its replicas say it.
const char* state_of(const HotLoad& load, const std::vector<FleetMember>& members) {
  if (!load.failure.empty()) return "FAILED";
  return load.ended > 0 || all_have(members, load.identity) ? "READY" : "LOADING";
}

// The snapshots that were loaded into the deployment, the oldest first.
void tell_ledger(const DeploymentCall& call) {
  const Deployment d = deployment_at(call);
  const auto& fleet = call.host.fleet;
  const std::vector<FleetMember> members = fleet ? fleet->members() : std::vector<FleetMember>();
  std::set<std::string> told;
  TrainingJson entries = TrainingJson::array();
  for (auto one = d.ledger.rbegin(); one != d.ledger.rend(); ++one) {
    TrainingJson entry{{"identity", one->identity}, {"state", state_of(*one, members)}, {"createTime", iso_time(one->began)}};
    if (one->ended > 0) entry["endTime"] = iso_time(one->ended);
    if (one->type != HotLoad::kAnyWay && (one->failure.empty() || !one->type.empty())) entry["type"] = one->type == "delta" ? "DELTA" : "FULL";
    if (!one->failure.empty()) entry["error"] = one->failure;
    if (told.insert(one->identity).second && !members.empty()) entry["replicas"] = replica_rows(members, one->identity);
    entries.push_back(std::move(entry));
  }
  std::reverse(entries.begin(), entries.end());
  call.answer({{"name", d.name + "/ledger"}, {"entries", entries}});
}

// A text that stays. Error invalid_argument: it is too long.
std::string kept_text(const TrainingJson& json, const std::string& name, const std::string& standard = {}) {
  std::string text = text_field(json, name, standard);
  check_short_text(name, text);
  return text;
}

// How its hot loads go over; empty: as the server says.
std::string transition_of(const TrainingJson& json, const std::string& standard) {
  const std::string name = "hotLoadTransitionType";
  if (!is_given(json, name)) return standard;
  const std::string type = text_field(json, name);
  const std::vector<std::string> known{"SYNC", "ASYNC"};
  if (type.empty() || type == "HOT_LOAD_TRANSITION_TYPE_UNSPECIFIED") return {};
  if (std::find(known.begin(), known.end(), type) == known.end()) fail_value(name, fmt::format("is '{}', {}", shown(type), allowed_are(type, known)));
  return type;
}

void take_fields(const TrainingJson& json, Deployment& d) {
  d.trainer_job = kept_text(json, "hotLoadTrainerJob", d.trainer_job);
  d.transition_type = transition_of(json, d.transition_type);
  d.description = kept_text(json, "description", d.description);
  d.min_replicas = integer_field(json, "minReplicaCount", d.min_replicas);
  d.max_replicas = integer_field(json, "maxReplicaCount", d.max_replicas);
}

// With ?updateMask=description,min_replica_count,...: these fields of the body alone; one that the body lacks becomes "" or 0.
TrainingJson masked(const DeploymentCall& call) {
  const TrainingJson& json = call.body;
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
      fail_value("updateMask", fmt::format("names '{}', {}", shown(path), allowed_are(path, names)));
    }
    const auto& [name, empty] = found->second;
    out[name] = json.contains(name) && !(json[name].is_null() && empty.is_string()) ? json[name] : empty;
  }
  return out;
}

void create_deployment(const DeploymentCall& call) {
  const TrainingJson& json = call.body;
  const std::string id = call.request.query_value("deploymentId").value_or("");
  if (id.empty()) fail_value("deploymentId", "is missing");
  check_short_text("deploymentId", id);
  const bool guesses = !query_flag(call.request, "disableSpeculativeDecoding");
  if (!guesses && !call.host.chooses_guesses)
    throw RequestError(ErrorCode::unsupported, "disableSpeculativeDecoding",
                       "disableSpeculativeDecoding is true, allowed is false on a server without a trainer: each request says whether it is guessed ahead");
  const std::string name = resource_name(call.request, kDeployments, id), base_model = kept_text(json, "baseModel", call.host.base_model);
  call.host.check_base_model(call.owner, base_model);
  if (call.host.records->find(call.owner, name)) return call.answer(conflict_json(fmt::format("the deployment '{}' exists already", name)), 409);
  call.answer(deployment_json(call.host.records->change(call.owner, name, [&](Deployment& d) {
    d.base_model = base_model;
    d.shape = kept_text(json, "deploymentShape");
    d.guesses = guesses;
    take_fields(json, d);
  })));
}

void list_deployments(const DeploymentCall& call) {
  TrainingJson rows = TrainingJson::array();
  for (const Deployment& d : call.host.records->all(call.owner)) rows.push_back(deployment_json(d));
  call.answer(page_of(call.request, kDeployments, rows));
}

void change_deployment(const DeploymentCall& call) {
  const TrainingJson json = masked(call);
  call.answer(deployment_json(changed_at(call, [&](Deployment& d) { take_fields(json, d); })));
}

void delete_deployment(const DeploymentCall& call) {
  call.host.records->remove(call.owner, deployment_at(call).name);
  call.answer(TrainingJson::object());
}

void empty_ledger(const DeploymentCall& call) {
  changed_at(call, [](Deployment& d) { d.ledger.clear(); });
  call.answer(TrainingJson::object());
}

JsonFields deployment_fields(std::initializer_list<const char*> more) {
  JsonFields known = known_fields({"hotLoadTrainerJob", "hotLoadTransitionType", "description", "minReplicaCount", "maxReplicaCount"},
                                  {"forTraining", "placement", "acceleratorType", "annotations", "preemptible"});
  known.taken(more);
  known.harmless("enableHotLoad", {true});
  known.harmless("hotLoadBucketType", {"FW_HOSTED"});
  known.only("extraArgs", {Json::array()});
  known.only("extraValues", {Json::object()});
  return known;
}

// There is one, by which the package makes its paths.
void list_accounts(const DeploymentCall& call) {
  call.answer(page_of(call.request, "accounts", TrainingJson::array({{{"name", fmt::format("accounts/{}", kTrainingAccount)}}})));
}

struct DeploymentRoute {
  const char* method;
  std::string path;
  void (*handler)(const DeploymentCall& call);
  std::vector<std::string> query = {};
  std::optional<JsonFields> fields = {};  // of the body; none: it is not read
};

std::vector<DeploymentRoute> deployment_routes() {
  const std::string all = fmt::format("/v1/accounts/{{account}}/{}", kDeployments), one = all + "/{deployment}";
  std::vector<DeploymentRoute> rows;
  rows.push_back({"POST", all, create_deployment, known_query({"deploymentId", "disableSpeculativeDecoding"}, {"skipShapeValidation", "acceptShapelessRisk"}),
                  deployment_fields({"baseModel", "deploymentShape"})});
  rows.push_back({"GET", all, list_deployments, page_query()});
  rows.push_back({"GET", one, [](const DeploymentCall& call) { call.answer(deployment_json(deployment_at(call))); }});
  rows.push_back({"PATCH", one, change_deployment, {"updateMask"}, deployment_fields({})});
  rows.push_back({"DELETE", one, delete_deployment, known_query({}, {"ignoreChecks", "hard"})});
  rows.push_back({"GET", one + "/ledger", tell_ledger});
  rows.push_back({"DELETE", one + "/ledger", empty_ledger});
  return rows;
}
}  // namespace

DeploymentHost trainer_deployments(const std::shared_ptr<TrainingService>& service) {
  return {.records = std::make_shared<TrainerDeployments>(service),
          .fleet = service->options().fleet,
          .base_model = service->base().name,
          .check_base_model = [service](const std::string& owner, const std::string& name) { check_base_model(*service, owner, name); },
          .chooses_guesses = true};
}

DeploymentHost replica_deployments(std::shared_ptr<HostedDeployments> records, std::shared_ptr<FleetPort> fleet, std::shared_ptr<const Deployments> models) {
  const std::string first = models->first()->model().name();
  const auto check = [models = std::move(models)](const std::string&, const std::string& name) {
    const std::vector<std::string> names = models->names();
    if (std::find(names.begin(), names.end(), model_label(name)) != names.end()) return;
    throw RequestError(ErrorCode::not_found, "baseModel", fmt::format("baseModel is '{}', {}", shown(name), allowed_are(name, names)), 404);
  };
  return {.records = std::move(records), .fleet = std::move(fleet), .base_model = first, .check_base_model = check};
}

void add_deployment_routes(TrainingRoutes& routes, const DeploymentHost& host) {
  for (const DeploymentRoute& row : deployment_routes()) {
    const auto handler = [host, handler = row.handler, has_body = row.fields.has_value()](const TrainingCall& call) {
      handler({call.request, call.out, call.owner, has_body ? call.json() : TrainingJson::object(), host});
    };
    routes.add_at_root(row.method, row.path, row.fields.value_or(JsonFields()), handler, row.query);
  }
}

void add_deployment_routes(Routes& routes, const DeploymentHost& host) {
  RequestLanes& lanes = routes.lanes();
  std::vector<DeploymentRoute> rows = deployment_routes();
  rows.push_back({"GET", "/v1/accounts", list_accounts, page_query()});
  for (const DeploymentRoute& row : rows) {
    const auto work = [host, row](ApiRequest& request, const std::shared_ptr<Responder>& out) {
      TrainingJson body = TrainingJson::object();
      if (row.fields) {
        if (!request.body.empty()) body = parse_object(request.body);
        row.fields->read(body);
      }
      row.handler({request, out, request.owner, std::move(body), host});
    };
    Route route{row.method, row.path, [work, &lanes](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                  lanes.small.post(
                      std::move(request), out, [work, out](ApiRequest& its) { work(its, out); }, [](const std::exception& e) { return error_response(e); });
                }};
    route.query = row.query;
    routes.add(std::move(route));
  }
}

}  // namespace lockstep
