// The control plane: one account, whose trainer is this server. A job runs at once, a deployment is ready at once; both are names.
#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/fireworks/shape_routes.h"

namespace lockstep {
namespace {

std::string segment(const TrainingCall& call, std::string_view name) { return std::string(call.request.parameter(name)); }

TrainingJson checkpoint_row(const TrainingCall& call, const CheckpointRecord& r) {
  const bool lora = r.settings.rank > 0, state = r.kind == "weights";
  return {{"name", fmt::format("accounts/{}/rlorTrainerJobs/{}/checkpoints/{}", segment(call, "account"), segment(call, "job"), r.name)},
          {"createTime", iso_time(r.created)},
          {"updateTime", iso_time(r.created)},
          {"checkpointType", fmt::format("CHECKPOINT_TYPE_{}", state ? (lora ? "TRAINING_LORA" : "TRAINING") : (lora ? "INFERENCE_LORA" : "INFERENCE_BASE"))},
          {"promotable", !state}};
}

TrainingJson job_json(const TrainingCall& call, const std::string& account, const std::string& id) {
  return {{"name", fmt::format("accounts/{}/rlorTrainerJobs/{}", account, id)},
          {"state", "JOB_STATE_RUNNING"},
          {"trainingConfig", {{"baseModel", call.service.base().name}, {"maxContextLength", call.service.base().opened.runtime->max_positions}}},
          {"status", {{"code", "OK"}, {"message", ""}}}};
}

TrainingJson deployment_json(const Deployment& d) {
  return {{"name", d.name}, {"state", "READY"}, {"baseModel", d.base_model}, {"deploymentShape", "accounts/local/deploymentShapes/local/versions/1"}, {"hotLoadTrainerJob", d.trainer_job}};
}

void create_deployment(const TrainingCall& call, Deployments& deployments) {
  const TrainingJson json = call.json();
  const std::string id = call.request.query_value("deploymentId").value_or("");
  if (id.empty()) fail_value("deploymentId", "is missing");
  const std::string name = fmt::format("accounts/{}/deployments/{}", segment(call, "account"), id);
  if (deployments.find(call.owner, name)) throw RequestError(ErrorCode::already_exists, "deploymentId", fmt::format("the deployment '{}' exists already", name), 409);
  deployments.change(call.owner, name, [&](Deployment& d) {
    d.base_model = text_field(json, "baseModel");
    d.trainer_job = text_field(json, "hotLoadTrainerJob");
  });
  call.answer(deployment_json(deployments.at(call.owner, name)));
}

Deployment deployment_at(const TrainingCall& call, const Deployments& deployments) {
  const std::string name = fmt::format("accounts/{}/deployments/{}", segment(call, "account"), segment(call, "deployment"));
  const std::optional<Deployment> found = deployments.find(call.owner, name);
  if (!found) throw RequestError(ErrorCode::not_found, "deployment", fmt::format("there is no deployment '{}'", shown(name)), 404);
  return *found;
}
}  // namespace

void add_control_routes(TrainingRoutes& routes, const std::shared_ptr<Deployments>& deployments, const std::shared_ptr<const ShapeCatalog>& shapes) {
  routes.add_at_root("GET", "/v1/accounts", [](const TrainingCall& call) { call.answer({{"accounts", {{{"name", "accounts/local"}}}}}); });

  const std::string jobs = "/v1/accounts/{account}/rlorTrainerJobs";
  routes.add_at_root("POST", jobs, [shapes](const TrainingCall& call) {
    const std::string id = call.request.query_value("rlorTrainerJobId").value_or("");
    TrainingJson job = job_json(call, segment(call, "account"), id.empty() ? "trainer" : id);
    if (const std::string shape = shape_of_job(call, *shapes); !shape.empty()) job["trainingShape"] = shape_version_name(segment(call, "account"), shape);
    call.answer(job);
  });
  routes.add_at_root("GET", jobs + "/{job}", [](const TrainingCall& call) { call.answer(job_json(call, segment(call, "account"), segment(call, "job"))); });
  routes.add_at_root("DELETE", jobs + "/{job}", [](const TrainingCall& call) { call.answer(TrainingJson::object()); });
  routes.add_at_root("GET", jobs + "/{job}/checkpoints", [](const TrainingCall& call) {
    TrainingJson rows = TrainingJson::array();
    for (const CheckpointRecord& r : call.service.checkpoints(call.owner)) rows.push_back(checkpoint_row(call, r));
    call.answer({{"checkpoints", rows}});
  });

  const std::string all = "/v1/accounts/{account}/deployments", one = all + "/{deployment}";
  routes.add_at_root("POST", all, [deployments](const TrainingCall& call) { create_deployment(call, *deployments); });
  routes.add_at_root("GET", one, [deployments](const TrainingCall& call) { call.answer(deployment_json(deployment_at(call, *deployments))); });
  routes.add_at_root("PATCH", one, [deployments](const TrainingCall& call) {
    const TrainingJson json = call.json();
    const Deployment d = deployment_at(call, *deployments);
    deployments->change(call.owner, d.name, [&](Deployment& changed) { changed.trainer_job = text_field(json, "hotLoadTrainerJob", changed.trainer_job); });
    call.answer(deployment_json(deployment_at(call, *deployments)));
  });
  routes.add_at_root("DELETE", one, [deployments](const TrainingCall& call) {
    deployments->remove(call.owner, deployment_at(call, *deployments).name);
    call.answer(TrainingJson::object());
  });
}

void add_fireworks_routes(Routes& table, const std::shared_ptr<TrainingService>& service, const ShapeCatalog& listed) {
  TrainingRoutes routes(table, service);
  const auto shapes = std::make_shared<const ShapeCatalog>(with_base_shapes(listed, service->base()));
  const auto deployments = std::make_shared<Deployments>();
  add_completion_routes(routes, deployments);
  add_hot_load_routes(routes, deployments);
  add_control_routes(routes, deployments, shapes);
  add_shape_routes(routes, shapes);
}

}  // namespace lockstep
