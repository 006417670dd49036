#include "api/openai/model_deployment_routes.h"

#include <algorithm>
#include <mutex>

#include "api/errors.h"
#include "api/json_fields.h"
#include "api/openai/channel_gate.h"
#include "base/log.h"
#include "base/server_paths.h"
#include "serving/plain_name.h"

namespace lockstep {
namespace {
ApiResponse told(const Json& json) { return {200, "application/json", json.dump(-1, ' ', false, Json::error_handler_t::replace), {}}; }

Json line_json(const DeploymentLine& line) {
  const GenerationService* service = line.service.get();
  return {{"id", line.name},
          {"object", "deployment"},
          {"state", service           ? "ready"
                    : line.is_loading ? "loading"
                                      : "asleep"},
          {"source", without_server_paths(line.source)},
          {"created", static_cast<std::int64_t>(line.created)},
          {"memory_bytes", line.bytes},
          {"shared_bytes", line.shared_bytes},
          {"open_requests", service ? service->bounds().open() : 0},
          {"loads", line.loads},
          {"fault", line.fault.empty() ? Json(nullptr) : Json(without_server_paths(line.fault))},
          {"weights_version", service ? Json(service->weights().version()) : Json(nullptr)},
          {"snapshot", line.snapshot.empty() ? Json(nullptr) : Json(line.snapshot)},
          {"profile", service ? Json(service->model().profile_digest()) : Json(nullptr)}};
}

Json weights_json(const std::vector<TrafficShare>& shares) {
  Json json = Json::object();
  for (const TrafficShare& one : shares) json[one.deployment] = one.weight;
  return json;
}

Json rule_json(const TrafficRule& rule) {
  return {{"id", rule.alias},
          {"object", "alias"},
          {"deployments", weights_json(rule.shares)},
          {"before", rule.before.empty() ? Json(nullptr) : weights_json(rule.before)},
          {"gated", rule.gate != nullptr}};
}

// {"v7": 95, "v8": 5}, or one name.
std::vector<TrafficShare> read_shares(const Json& value, const std::string& name) {
  if (value.is_string()) return {{value.get<std::string>(), 1}};
  require_object(value, name);
  std::vector<TrafficShare> shares;
  for (const auto& [deployment, weight] : value.items())
    shares.push_back({deployment, json_integer(weight, fmt::format("{}.{}", name, shown(deployment)), 0, TrafficTable::kMostWeight)});
  return shares;
}

class ModelDeploymentRoutes {
 public:
  ModelDeploymentRoutes(std::shared_ptr<Deployments> deployments, ModelDeploymentRouteOptions options)
      : deployments_(std::move(deployments)), options_(std::move(options)), gate_(*options_.gate), changes_(gate_.changes()) {}

  ApiResponse list(const ApiRequest&) const {
    Json rows = Json::array();
    for (const DeploymentLine& line : deployments_->list()) rows.push_back(line_json(line));
    return told({{"object", "list"}, {"data", std::move(rows)}, {"leaving", deployments_->leaving()}});
  }
  ApiResponse open(const ApiRequest& request) const {
    check_administrator(request);
    std::string name, source;
    JsonFields fields;
    fields.text("name", &name);
    fields.text("source", &source);
    fields.read(parse_object(request.body));
    if (name.empty()) fail_field("name", "is missing");
    if (source.empty()) fail_field("source", "is missing");
    if (!options_.open) fail(ErrorCode::unsupported, "models are not loaded while this server runs; --deploy-folder names the folder whose folders may be");
    deployments_->check_name(name);
    ModelDeployment made = deployments_->with_room([&] { return options_.open(name, source); });
    const std::string snapshot = made.service->weights().snapshot();
    {
      const std::lock_guard lock(changes_);
      deployments_->add(std::move(made));
      store([&](StoredDeployments& stored) { stored.made({name, source, snapshot}); });
    }
    log_info("a deployment was made", {{"name", name}, {"key", request.key_name}});
    for (const DeploymentLine& line : deployments_->list())
      if (line.name == name) return told(line_json(line));
    fail(ErrorCode::not_found, "the deployment '{}' was deleted meanwhile", name);
  }
  ApiResponse remove(const ApiRequest& request) const {
    check_administrator(request);
    const std::string name(request.parameter("name"));
    {
      const std::lock_guard lock(changes_);
      deployments_->remove(name);
      store([&](StoredDeployments& stored) { stored.deleted(name); });
    }
    log_info("a deployment was deleted, and ends with its last request", {{"name", name}, {"key", request.key_name}});
    return told({{"id", name}, {"object", "deployment"}, {"deleted", true}});
  }

  ApiResponse aliases(const ApiRequest&) const {
    Json rows = Json::array();
    for (const TrafficRule& rule : deployments_->traffic().list()) rows.push_back(rule_json(rule));
    return told({{"object", "list"}, {"data", std::move(rows)}});
  }
  ApiResponse route(const ApiRequest& request) const {
    check_administrator(request);
    const std::string alias(request.parameter("alias"));
    std::vector<TrafficShare> shares;
    std::optional<GateSpec> gate;
    bool force = false;
    const Json body = parse_object(request.body);
    JsonFields fields;
    fields.boolean("force", &force);
    fields.custom("gate", [&](const Json& value, const std::string& name) { gate = read_gate(value, name); });
    fields.custom("deployments", [&](const Json& value, const std::string& name) { shares = read_shares(value, name); });
    fields.read(body);
    if (shares.empty()) fail_field("deployments", "is missing or empty, allowed is the name of one, or {NAME: WEIGHT, ..}");
    if (force && !gate) fail_field("force", "is refused without a gate, which it would overrule");
    // The gate takes as long as its answers, so other changes go on meanwhile.
    const auto kept_gate = [&] { return gate ? gate_to_keep(*deployments_, rule_to_be(alias, shares), body["gate"]) : nullptr; };
    kept_gate();  // so that an unsupported gate is refused before it runs
    std::optional<JudgedTraffic> judged = gate ? std::optional(gate_.judge(alias, shares, *gate, request.key_name, force)) : std::nullopt;
    const std::lock_guard lock(changes_);
    if (judged) gate_.check_same(*judged);
    std::shared_ptr<const std::string> standing = kept_gate();
    deployments_->route(alias, std::move(shares));
    if (body.contains("gate")) deployments_->traffic().set_gate(alias, std::move(standing));
    if (judged) gate_.moved(*judged);
    Json rule = changed(alias, request);
    if (judged) rule["gates"] = judged->reports;
    return told(rule);
  }
  ApiResponse gates(const ApiRequest&) const { return told({{"object", "list"}, {"data", gate_.reports().list()}}); }
  ApiResponse gate(const ApiRequest& request) const {
    const std::string id(request.parameter("gate"));
    if (const std::optional<Json> report = gate_.reports().find(id)) return told(*report);
    fail(ErrorCode::not_found, "there is no gate '{}', or it is not among the last {}", shown_name(id), GateReports::kMost);
  }
  ApiResponse roll_back(const ApiRequest& request) const {
    check_administrator(request);
    const std::string alias(request.parameter("alias"));
    const std::lock_guard lock(changes_);
    const TrafficRule now = deployments_->traffic().roll_back(alias);
    store([&](StoredDeployments& stored) { stored.alias(now); });
    log_info("an alias was rolled back", {{"alias", alias}, {"deployments", shares_text(now.shares)}, {"key", request.key_name}});
    return told(rule_json(now));
  }
  ApiResponse remove_alias(const ApiRequest& request) const {
    check_administrator(request);
    const std::string alias(request.parameter("alias"));
    const std::lock_guard lock(changes_);
    deployments_->traffic().remove(alias);
    store([&](StoredDeployments& stored) { stored.alias_deleted(alias); });
    log_info("an alias was deleted", {{"alias", alias}, {"key", request.key_name}});
    return told({{"id", alias}, {"object", "alias"}, {"deleted", true}});
  }

 private:
  // The rule that the alias has once it has these shares.
  TrafficRule rule_to_be(const std::string& alias, const std::vector<TrafficShare>& shares) const {
    const std::optional<TrafficRule> now = deployments_->traffic().find(alias);
    if (!now) return {alias, shares, {}};
    return {alias, shares, now->shares == shares ? now->before : now->shares};
  }
  Json changed(const std::string& alias, const ApiRequest& request) const {
    const std::optional<TrafficRule> now = deployments_->traffic().find(alias);
    if (!now) fail(ErrorCode::not_found, "the alias '{}' was deleted meanwhile", alias);
    store([&](StoredDeployments& stored) { stored.alias(*now); });
    log_info("an alias has other deployments", {{"alias", alias}, {"deployments", shares_text(now->shares)}, {"key", request.key_name}});
    return rule_json(*now);
  }
  // Stores a change. The change stands even if it cannot be stored; then the client gets an error. Called under the lock of changes, so that
  // they are stored in the order in which they were made.
  template <class Write>
  void store(const Write& write) const {
    if (!options_.stored) return;
    try {
      write(*options_.stored);
    } catch (const Error& e) {
      log_error("a change of models is not kept over a restart", {{"reason", e.what()}});
      fail(e.code(), "it is changed until the server ends, and cannot be kept over a restart: {}", without_server_paths(e.message()));
    }
  }
  void check_administrator(const ApiRequest& request) const {
    if (!options_.keys) return;
    const std::vector<std::string>& all = options_.administrators;
    if (std::find(all.begin(), all.end(), request.key_name) != all.end()) return;
    throw RequestError(ErrorCode::invalid_argument, {},
                       fmt::format("the key of '{}' may not change this server's models (--admin names the keys that may)", request.key_name), 403,
                       "permission_denied");
  }

  const std::shared_ptr<Deployments> deployments_;
  const ModelDeploymentRouteOptions options_;
  AliasGate& gate_;  // of the options
  std::mutex& changes_;
};
}  // namespace

void add_model_deployment_routes(Routes& routes, std::shared_ptr<Deployments> deployments, ModelDeploymentRouteOptions options) {
  const auto api = std::make_shared<ModelDeploymentRoutes>(std::move(deployments), std::move(options));
  using Answer = ApiResponse (ModelDeploymentRoutes::*)(const ApiRequest&) const;
  const auto add = [&](const char* method, const char* path, Answer answer) {
    routes.add({method, path, [api, answer](ApiRequest& request, const std::shared_ptr<Responder>& out) { out->send((api.get()->*answer)(request)); }});
  };
  // Runs a handler that reads a model or waits for the disk on a pool instead of the server's own thread. `lane_of`: the pool of a request.
  using LaneOf = std::function<RequestPool&(const ApiRequest&)>;
  const auto change = [&](const char* method, const char* path, LaneOf lane_of, Answer answer) {
    routes.add({method, path, [api, answer, lane_of = std::move(lane_of)](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                  lane_of(request).post(
                      std::move(request), out, [a = api.get(), answer, out](ApiRequest& r) { out->send((a->*answer)(r)); },
                      [](const std::exception& e) { return error_response(e); });
                }});
  };
  RequestLanes& lanes = routes.lanes();
  const auto large = [&lanes](const ApiRequest&) -> RequestPool& { return lanes.large; };
  const auto small = [&lanes](const ApiRequest&) -> RequestPool& { return lanes.small; };
  const auto by_gate = [&lanes](const ApiRequest& r) -> RequestPool& { return r.body.find("gate") != std::string::npos ? lanes.large : lanes.small; };
  add("GET", "/v1/deployments", &ModelDeploymentRoutes::list);
  change("POST", "/v1/deployments", large, &ModelDeploymentRoutes::open);
  change("DELETE", "/v1/deployments/{name}", small, &ModelDeploymentRoutes::remove);
  add("GET", "/v1/aliases", &ModelDeploymentRoutes::aliases);
  add("GET", "/v1/gates", &ModelDeploymentRoutes::gates);
  add("GET", "/v1/gates/{gate}", &ModelDeploymentRoutes::gate);
  change("PUT", "/v1/aliases/{alias}", by_gate, &ModelDeploymentRoutes::route);
  change("DELETE", "/v1/aliases/{alias}", small, &ModelDeploymentRoutes::remove_alias);
  change("POST", "/v1/aliases/{alias}/rollback", small, &ModelDeploymentRoutes::roll_back);
}

void append_deployment_metrics(const Deployments& deployments, PrometheusText& text) {
  const std::vector<DeploymentLine> all = deployments.list();
  const auto family = [&](const char* name, const char* type, const char* help, auto value) {
    text.family(name, type, help);
    for (const DeploymentLine& line : all) text.sample({{"deployment", line.name}}, static_cast<double>(value(line)));
  };
  family("lockstep_deployment_sequences_total", "counter", "Sequences that a deployment took.", [](const DeploymentLine& line) { return line.requests; });
  family("lockstep_deployment_generated_tokens_total", "counter", "Tokens that a deployment generated for requests.",
         [](const DeploymentLine& line) { return line.generated_tokens; });
  family("lockstep_deployment_open_sequences", "gauge", "Sequences of a deployment that have not ended.",
         [](const DeploymentLine& line) { return line.service ? line.service->bounds().open() : 0; });
  family("lockstep_deployment_memory_bytes", "gauge",
         "Memory that is claimed for a deployment alone; 0 of the first, which is counted with the server, and of one that is asleep.",
         [](const DeploymentLine& line) { return line.bytes; });
  family("lockstep_deployment_shared_bytes", "gauge", "Weights of a deployment that stand in memory once for it and for others.",
         [](const DeploymentLine& line) { return line.shared_bytes; });
  family("lockstep_deployment_asleep", "gauge", "1 for a deployment that is not in memory until it is asked for.",
         [](const DeploymentLine& line) { return line.service ? 0 : 1; });
  family("lockstep_deployment_loads_total", "counter", "How often a deployment was loaded again after it had left memory.",
         [](const DeploymentLine& line) { return line.loads; });
  text.family("lockstep_deployments_leaving", "gauge", "Deployments that were deleted and whose requests have not ended.");
  text.sample({}, static_cast<double>(deployments.leaving()));
}

}  // namespace lockstep
