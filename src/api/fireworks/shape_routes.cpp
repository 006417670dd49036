#include "api/fireworks/shape_routes.h"

#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"
#include "planning/shape_resolver.h"

namespace lockstep {
namespace {
constexpr const char* kShapeVersion = "1";  // our one version of every shape

// Unknown values are left out: every field has a default in the client.
TrainingJson shape_version(const TrainingCall& call, const ShapeCatalog& shapes) {
  const TrainingShape& shape = shapes.shape(path_segment(call, "shape"));
  const std::optional<ShapeFit> fit = shapes.fit(shape);
  const ShapeLayout layout = shape.layout ? *shape.layout : fit ? fit->plan.layout : ShapeLayout{};
  TrainingJson snapshot = {
      {"trainerImageTag", "lockstep"},
      {"deploymentShapeVersion", fmt::format("accounts/{}/deploymentShapes/{}/versions/{}", path_segment(call, "account"), shape.id, kShapeVersion)},
      {"deploymentImageTag", "lockstep"},
      {"baseModel", shapes.model(shape.model).name},
      {"baseModelWeightPrecision", shape.int4_experts ? "INT4" : "BF16"},
      {"trainerShardingScheme",
       {{"pipelineParallelism", layout.pp}, {"tensorParallelism", layout.tp}, {"contextParallelism", layout.cp}, {"expertParallelism", layout.ep}}},
      {"trainerMode", trainer_mode(shape.mode)}};
  if (shape.context > 0) snapshot["maxSupportedContextLength"] = shape.context;
  if (shape.accelerators > 0) {
    snapshot["nodeCount"] = shape.nodes();
    snapshot["acceleratorType"] = shape.accelerator;
    snapshot["acceleratorCount"] = shape.accelerators;
  }
  return {{"name", shape_version_name(path_segment(call, "account"), shape.id)}, {"snapshot", snapshot}};
}

std::int64_t count_field(const TrainingJson& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return 0;
  if (!found->is_number_integer() || found->get<std::int64_t>() < 0)
    throw RequestError(ErrorCode::invalid_argument, name, fmt::format("{} is {}, allowed are integers from 0 on", name, shown(found->dump())), 400);
  return found->get<std::int64_t>();
}
}  // namespace

std::string shape_version_name(const std::string& account, const std::string& shape) {
  return fmt::format("accounts/{}/trainingShapes/{}/versions/{}", account, shape, kShapeVersion);
}

ShapeCatalog with_base_shapes(const ShapeCatalog& listed, const TrainingBase& base) {
  ShapeCatalog all = listed;
  const ShapeModel* known = all.find_model(base.name);
  TrainingShape shape{
      .model = known ? known->id : base.name, .context = base.opened.runtime->max_positions, .accelerator = "CPU", .accelerators = 1, .source = "this server"};
  std::string id;
  for (const char c : shape.model) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    id += (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9') ? lower : '-';
  }
  for (const auto& [mode, end] : {std::pair{ShapeMode::policy, "-cpu"}, {ShapeMode::lora, "-lora-cpu"}, {ShapeMode::reference, "-cpu-reference"}}) {
    shape.id = id + end;
    shape.mode = mode;
    all.put(shape);
  }
  return all;
}

std::string shape_of_job(const TrainingCall& call, const ShapeCatalog& shapes) {
  const bool unchecked = query_flag(call, "skipValidations");
  if (const std::string named = call.request.query_value("trainingShape").value_or(""); !named.empty()) {
    const std::string_view before = "/trainingShapes/";
    const std::size_t at = named.find(before), begin = at == std::string::npos ? 0 : at + before.size();
    return shapes.shape(named.substr(begin, named.find('/', begin) - begin)).id;
  }
  const TrainingJson json = call.json();
  const auto config = json.find("trainingConfig");
  if (unchecked || config == json.end() || !config->is_object()) return {};
  const std::string model = text_field(*config, "baseModel");
  if (model.empty()) return {};
  const TrainingBase& base = call.service.base();
  ShapeRequest request{.model = model, .context = count_field(*config, "maxContextLength"), .lora_rank = count_field(*config, "loraRank")};
  const auto forward_only = json.find("forwardOnly");
  request.forward_only = forward_only != json.end() && forward_only->is_boolean() && forward_only->get<bool>();
  if (request.forward_only) request.lora_rank = 0;
  // The base by any of its names is what this server trains; another model is told what it would need.
  if (call.service.base().is_called(model) || shapes.find_model(model) == shapes.find_model(base.name)) {
    request.model = base.name;
    request.accelerator = "CPU";
  }
  const ShapeChoice choice = resolve_shape(shapes, request);
  std::string reasons;
  for (const RejectedShape& r : choice.rejected) reasons += fmt::format("; {}: {}", r.id, fmt::join(r.reasons, ", "));
  if (!choice.shape) throw RequestError(ErrorCode::invalid_argument, "trainingConfig", choice.why + reasons, 400);
  if (choice.shape->accelerator != "CPU")
    throw RequestError(ErrorCode::invalid_argument, "trainingConfig",
                       fmt::format("this server trains {} alone; {} would be trained by {}", base.name, shown(model), choice.why), 400);
  return choice.shape->id;
}

void add_shape_routes(TrainingRoutes& routes, const std::shared_ptr<const ShapeCatalog>& shapes) {
  const std::string versions = "/v1/accounts/{account}/trainingShapes/{shape}/versions";
  routes.add_at_root("GET", versions,
                     [shapes](const TrainingCall& call) {
                       const std::string filter = call.request.query_value("filter").value_or("");  // a shape's one version is its latest, and good
                       if (!filter.empty() && filter != "latest_validated=true")
                         fail_value("filter", fmt::format("is '{}', allowed is latest_validated=true", shown(filter)));
                       answer_page(call, "trainingShapeVersions", TrainingJson::array({shape_version(call, *shapes)}));
                     },
                     {"filter", "pageSize", "pageToken"});
  routes.add_at_root("GET", versions + "/{version}", [shapes](const TrainingCall& call) {
    if (path_segment(call, "version") != kShapeVersion)
      throw RequestError(ErrorCode::not_found, "version",
                         fmt::format("the shape has no version '{}', allowed is {}", shown(path_segment(call, "version")), kShapeVersion), 404);
    call.answer(shape_version(call, *shapes));
  });
}

}  // namespace lockstep
