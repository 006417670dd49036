// Trainer jobs: names under which sessions are made; this server runs all of them. A job runs at once; a cancelled one has no models any
// more and can be resumed; a deleted one is gone except for its checkpoints.
#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/fireworks/shape_routes.h"
#include "base/entropy.h"
#include "base/hash.h"
#include "host/training_records.h"

namespace lockstep {
namespace {
constexpr const char* kJobs = "rlorTrainerJobs";

TrainingJson job_json(const TrainingCall& call, const TrainerJob& job) {
  const std::int64_t most = call.service.base().opened.runtime->max_positions;
  TrainingJson json{
      {"name", job.name},
      {"state", job.state},
      {"displayName", job.display_name},
      {"createTime", iso_time(job.created)},
      {"updateTime", iso_time(job.updated)},
      {"forwardOnly", job.forward_only},
      {"trainingConfig",
       {{"baseModel", job.base_model}, {"loraRank", job.rank}, {"maxContextLength", job.max_context > 0 ? std::min(job.max_context, most) : most}}},
      {"status", {{"code", "OK"}, {"message", ""}}}};
  if (!job.shape.empty()) json["trainingShape"] = job.shape;
  return json;
}

[[noreturn]] void fail_deleted(const std::string& name) {
  throw RequestError(ErrorCode::not_found, "job", fmt::format("the trainer job '{}' was deleted", shown(name)), 404);
}

TrainerJob living_job(const TrainingCall& call, const std::string& id) {
  const std::string name = resource_name(call, kJobs, id);
  const TrainerJob job = call.service.control().job(call.owner, name);
  if (job.state == "JOB_STATE_DELETED") fail_deleted(name);
  return job;
}

void create_job(const TrainingCall& call, const ShapeCatalog& shapes) {
  const TrainingJson json = call.json(), config = object_field(json, "trainingConfig");
  const std::string display_name = text_field(json, "displayName");
  check_short_text("displayName", display_name);
  const std::string wanted = call.request.query_value("rlorTrainerJobId").value_or("");
  const std::string name = resource_name(call, kJobs, wanted.empty() ? "job-" + hex64(random_bits()) : wanted);
  const std::string base_model = text_field(config, "baseModel", call.service.base().name);
  check_short_text("baseModel", base_model);
  // A promoted model can be trained here even if the catalog of shapes does not list it.
  const bool promoted = call.request.query_value("trainingShape").value_or("").empty() && call.service.control().models.find(call.owner, base_model);
  if (!promoted && !shapes.find_model(base_model)) check_base_model(call, base_model);
  const std::string shape = promoted ? "" : shape_of_job(call, shapes);
  if (shape.empty()) check_base_model(call, base_model);
  StoredRecords<TrainerJob>& jobs = call.service.control().jobs;
  if (const auto same = jobs.find(call.owner, name); same && same->state != "JOB_STATE_DELETED")
    return answer_conflict(call, fmt::format("the trainer job '{}' exists already", name));
  call.answer(job_json(call, jobs.change(call.owner, name, [&](TrainerJob& job) {
    job.created = job.updated = unix_now();
    job.state = "JOB_STATE_RUNNING";
    job.base_model = base_model;
    job.display_name = display_name;
    job.shape = shape.empty() ? "" : shape_version_name(path_segment(call, "account"), shape);
    job.rank = integer_field(config, "loraRank", 0);
    job.max_context = integer_field(config, "maxContextLength", 0);
    job.forward_only = boolean_field(json, "forwardOnly", false);
  })));
}

// POST .../{job}:resume and :cancel.
void change_job(const TrainingCall& call) {
  call.json();  // has no field
  const std::string segment = path_segment(call, "job");
  ControlPlane& control = call.service.control();
  if (segment.ends_with(":cancel"))
    return call.answer(job_json(call, control.end_job(call.owner, living_job(call, path_segment(call, "job", ":cancel")).name, "JOB_STATE_CANCELLED")));
  const TrainerJob job = living_job(call, path_segment(call, "job", ":resume"));
  if (!control.jobs.find(call.owner, job.name)) return call.answer(job_json(call, job));  // the job "local" always runs
  // In one look-up: what is deleted in this moment is not made again.
  const auto resumed = control.jobs.change_existing(call.owner, job.name, [](TrainerJob& changed) {
    if (changed.state == "JOB_STATE_DELETED") fail_deleted(changed.name);
    changed.state = "JOB_STATE_RUNNING";
    changed.updated = unix_now();
  });
  if (!resumed) fail_deleted(job.name);
  call.answer(job_json(call, *resumed));
}
}  // namespace

void add_job_routes(TrainingRoutes& routes, const std::shared_ptr<const ShapeCatalog>& shapes) {
  const std::string jobs = fmt::format("/v1/accounts/{{account}}/{}", kJobs), one = jobs + "/{job}";
  JsonFields fields =
      known_fields({"displayName", "forwardOnly"}, {"keepAlive", "trainerReplicaCount", "useReservation", "reservationTarget", "nodeCount", "purpose",
                                                    "preemptible", "managedBy", "inactivityTimeout", "disableInactivityCleanup", "hotLoadDeploymentId"});
  fields.harmless("serviceMode", {true});
  fields.only("dataset", {""});
  fields.only("extraValues", {Json::object()});
  JsonFields config = known_fields({"baseModel", "loraRank", "maxContextLength"}, {"learningRate", "acceleratorType", "acceleratorCount", "region"});
  config.only("projectionHeadDim", {0});
  config.only("customImageTag", {""});
  config.only("extraArgs", {Json::array()});
  fields.inside("trainingConfig", std::move(config));
  routes.add_at_root(
      "POST", jobs, std::move(fields), [shapes](const TrainingCall& call) { create_job(call, *shapes); },
      known_query({"rlorTrainerJobId", "trainingShape", "skipValidations"}, {"deploymentId"}));
  routes.add_at_root(
      "GET", jobs,
      [](const TrainingCall& call) {
        TrainingJson rows = TrainingJson::array();
        for (const TrainerJob& job : call.service.control().jobs.all(call.owner))
          if (job.state != "JOB_STATE_DELETED") rows.push_back(job_json(call, job));
        answer_page(call, kJobs, rows);
      },
      page_query());
  routes.add_at_root("GET", one, [](const TrainingCall& call) { call.answer(job_json(call, living_job(call, path_segment(call, "job")))); });
  routes.add_at_root("POST", one, change_job);
  routes.add_at_root("DELETE", one, [](const TrainingCall& call) {
    call.service.control().end_job(call.owner, living_job(call, path_segment(call, "job")).name, "JOB_STATE_DELETED");
    call.answer(TrainingJson::object());
  });
  routes.add_at_root(
      "GET", one + "/checkpoints",
      [](const TrainingCall& call) {
        const std::string id = path_segment(call, "job");
        const TrainerJob job = call.service.control().job(call.owner, resource_name(call, kJobs, id));  // also one that was deleted
        TrainingJson rows = TrainingJson::array();
        for (const CheckpointRecord& r : call.service.checkpoints().of_job(call.owner, id)) rows.push_back(checkpoint_row(job.name, r));
        answer_page(call, "checkpoints", rows);
      },
      page_query());
}

}  // namespace lockstep
