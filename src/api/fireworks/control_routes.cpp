// The control plane: one account, whose trainer is this server, and the catalog of training shapes.
#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"
#include "service/training/training_shapes.h"

namespace lockstep {
namespace {

// Our one version of every shape.
constexpr const char* kShapeVersion = "1";

TrainingJson shape_version(const TrainingCall& call) {
  const TrainingShape& shape = training_shape(path_segment(call, "shape"));
  return {{"name", fmt::format("accounts/{}/trainingShapes/{}/versions/{}", path_segment(call, "account"), shape.id, kShapeVersion)},
          {"snapshot",
           {{"trainerImageTag", "lockstep"}, {"maxSupportedContextLength", shape.context}, {"nodeCount", shape.nodes()},
            {"deploymentShapeVersion", fmt::format("accounts/{}/deploymentShapes/{}/versions/{}", path_segment(call, "account"), shape.id, kShapeVersion)}, {"deploymentImageTag", "lockstep"},
            {"acceleratorType", shape.accelerator}, {"acceleratorCount", shape.accelerators}, {"baseModelWeightPrecision", "BF16"},
            {"trainerShardingScheme", {{"pipelineParallelism", 1}}}, {"trainerMode", shape.mode}}}};
}
}  // namespace

void add_control_routes(TrainingRoutes& routes) {
  routes.add_at_root("GET", "/v1/accounts", [](const TrainingCall& call) { call.answer({{"accounts", {{{"name", fmt::format("accounts/{}", kTrainingAccount)}}}}}); });

  const std::string versions = "/v1/accounts/{account}/trainingShapes/{shape}/versions";
  routes.add_at_root("GET", versions, [](const TrainingCall& call) { call.answer({{"trainingShapeVersions", {shape_version(call)}}}); });
  routes.add_at_root("GET", versions + "/{version}", [](const TrainingCall& call) {
    if (path_segment(call, "version") != kShapeVersion) throw RequestError(ErrorCode::not_found, "version", fmt::format("the shape has no version '{}', allowed is {}", shown(path_segment(call, "version")), kShapeVersion), 404);
    call.answer(shape_version(call));
  });
}

}  // namespace lockstep
