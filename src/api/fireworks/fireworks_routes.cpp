#include "api/fireworks/fireworks_routes.h"

#include <algorithm>
#include <charconv>

#include "api/errors.h"
#include "api/fireworks/shape_routes.h"

namespace lockstep {
namespace {
std::size_t page_number(const TrainingCall& call, const char* name, std::size_t standard) {
  const std::optional<std::string> text = call.request.query_value(name);
  if (!text || text->empty()) return standard;
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size()) fail_value(name, fmt::format("is '{}', allowed is a whole number", shown(*text)));
  return value;
}
}  // namespace

std::string path_segment(const TrainingCall& call, std::string_view name, std::string_view without) {
  std::string value(call.request.parameter(name));
  if (without.empty()) return value;
  if (!value.ends_with(without))
    throw RequestError(ErrorCode::not_found, {}, fmt::format("there is no {} here that ends otherwise than with {}", name, without), 404);
  value.resize(value.size() - without.size());
  return value;
}

std::string resource_name(const TrainingCall& call, std::string_view collection, const std::string& id) {
  return fmt::format("accounts/{}/{}/{}", path_segment(call, "account"), collection, id);
}

void answer_conflict(const TrainingCall& call, const std::string& message) {
  call.answer({{"error", {{"code", "ALREADY_EXISTS"}, {"message", message}}}}, 409);
}

void check_base_model(const TrainingCall& call, const std::string& name) {
  const std::vector<std::string>& names = call.service.base().names;
  if (call.service.base().is_called(name) || call.service.control().models.find(call.owner, name)) return;
  throw RequestError(ErrorCode::not_found, "baseModel",
                     fmt::format("baseModel is '{}', allowed are {} and promoted models{}", shown(name), fmt::join(names, ", "), did_you_mean(name, names)),
                     404);
}

void answer_page(const TrainingCall& call, const char* field, const TrainingJson& rows) {
  constexpr std::size_t kMostRows = 1000;
  const std::size_t begin = std::min(page_number(call, "pageToken", 0), rows.size());
  const std::size_t end = std::min(rows.size(), begin + std::clamp<std::size_t>(page_number(call, "pageSize", kMostRows), 1, kMostRows));
  TrainingJson page = TrainingJson::array();
  for (std::size_t i = begin; i < end; ++i) page.push_back(rows[i]);
  TrainingJson json{{field, page}};
  if (end < rows.size()) json["nextPageToken"] = std::to_string(end);
  call.answer(json);
}

std::vector<std::string> page_query() { return {"pageSize", "pageToken"}; }

bool query_flag(const TrainingCall& call, std::string_view name) {
  const std::string text = call.request.query_value(name).value_or("false");
  if (text != "true" && text != "false") fail_value(std::string(name), fmt::format("is '{}', allowed are true and false", shown(text)));
  return text == "true";
}

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
  add_deployment_routes(routes);
  add_promotion_routes(routes);
  add_serverless_routes(routes);
}

}  // namespace lockstep
