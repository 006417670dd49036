#include "api/fireworks/fireworks_routes.h"

#include "api/errors.h"
#include "api/fireworks/deployment_routes.h"
#include "api/fireworks/shape_routes.h"

namespace lockstep {

std::string path_segment(const TrainingCall& call, std::string_view name, std::string_view without) { return path_segment(call.request, name, without); }

std::string resource_name(const TrainingCall& call, std::string_view collection, const std::string& id) { return resource_name(call.request, collection, id); }

void answer_conflict(const TrainingCall& call, const std::string& message) { call.answer(conflict_json(message), 409); }

void check_base_model(const TrainingCall& call, const std::string& name) { check_base_model(call.service, call.owner, name); }

void check_base_model(TrainingService& service, const std::string& owner, const std::string& name) {
  const std::vector<std::string>& names = service.base().names;
  if (service.base().is_called(name) || service.control().models.find(owner, name)) return;
  throw RequestError(ErrorCode::not_found, "baseModel",
                     fmt::format("baseModel is '{}', allowed are {} and promoted models{}", shown(name), fmt::join(names, ", "), did_you_mean(name, names)),
                     404);
}

void answer_page(const TrainingCall& call, const char* field, const TrainingJson& rows) { call.answer(page_of(call.request, field, rows)); }

bool query_flag(const TrainingCall& call, std::string_view name) { return query_flag(call.request, name); }

TrainingJson checkpoint_row(const std::string& parent, const CheckpointRecord& r) {
  const bool lora = r.settings.rank > 0, state = r.kind == "weights";
  const char* type = state ? (lora ? "TRAINING_LORA" : "TRAINING") : lora ? "INFERENCE_LORA" : r.type == "delta" ? "INFERENCE_ARC_V2" : "INFERENCE_BASE";
  return {{"name", fmt::format("{}/checkpoints/{}", parent, r.name)},
          {"createTime", iso_time(r.created)},
          {"updateTime", iso_time(r.created)},
          {"checkpointType", fmt::format("CHECKPOINT_TYPE_{}", type)},
          {"promotable", !state}};  // a delta holds whole weights here
}

void add_fireworks_routes(Routes& table, const std::shared_ptr<TrainingService>& service, const ShapeCatalog& listed,
                          const std::shared_ptr<HeldStreams>& streams) {
  TrainingRoutes routes(table, service);
  const auto shapes = std::make_shared<const ShapeCatalog>(with_base_shapes(listed, service->base()));
  // One account, whose trainer is this server.
  routes.add_at_root(
      "GET", "/v1/accounts",
      [](const TrainingCall& call) {
        answer_page(call, "accounts", TrainingJson::array({{{"name", fmt::format("accounts/{}", kTrainingAccount)}}}));
      },
      page_query());
  add_completion_routes(routes, streams);
  add_hot_load_routes(routes, service->options().fleet);
  add_shape_routes(routes, shapes);
  add_job_routes(routes, shapes);
  add_deployment_routes(routes, trainer_deployments(service));
  add_promotion_routes(routes);
  add_serverless_routes(routes);
}

}  // namespace lockstep
