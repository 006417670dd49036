// POST /inference/v1/completions: token ids or a text in, token ids and both log-probabilities of each out, whole or as a stream.
#include "api/errors.h"
#include "api/fireworks/completion_answer.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/worker.h"
#include "base/server_paths.h"

namespace lockstep {
namespace {

struct CalledModel {
  SamplerWeights weights;
  std::optional<Deployment> deployment;  // none: the model is something else
};

CalledModel called_model(const TrainingCall& call, const std::string& model) {
  if (model.empty()) fail_field("model", "is missing");
  constexpr int kTries = 8;  // each failure is a hot load between the two looks
  ControlPlane& control = call.service.control();
  try {
    CalledModel called;
    called.deployment = control.deployments.find(call.owner, model);
    for (int tried = 0; tried < kTries; ++tried) {
      called.weights = control.weights(call.owner, model);
      const auto now = control.deployments.find(call.owner, model);
      const bool same = now.has_value() == called.deployment.has_value() && (!now || now->checkpoint == called.deployment->checkpoint);
      called.deployment = now;
      if (same) break;
    }
    return called;
  } catch (const Error& e) {
    throw RequestError(e.code(), "model", without_server_paths(e.message()));
  }
}

void complete(const TrainingCall& call, const std::weak_ptr<Worker>& long_writer) {
  FireworksCompletion wanted = decode_fireworks_completion(call.json());
  CalledModel called = called_model(call, wanted.sampling.model);
  complete_fireworks({.request_id = call.request.request_id,
                      .owner = call.owner,
                      .came = call.came,
                      .out = call.out,
                      .long_writer = long_writer,
                      .guesses = !called.deployment || called.deployment->guesses,
                      .identity = called.deployment ? called.deployment->identity : std::string()},
                     call.service.shared_generation(), std::move(wanted), std::move(called.weights.weights), std::move(called.weights.adapter),
                     call.service.base().opened.model->facts().expert_shape());
}
}  // namespace

void add_completion_routes(TrainingRoutes& routes) {
  constexpr std::size_t kMostLongAnswers = 1024;
  const auto writer = std::make_shared<Worker>(kMostLongAnswers, 0);
  for (const char* prefix : {"", "/training/v1/serverless"})
    routes.add_decoded(
        "POST", fmt::format("{}/inference/v1/completions", prefix), [writer](const TrainingCall& call) { complete(call, writer); }, kDrainingStatus);
}

}  // namespace lockstep
