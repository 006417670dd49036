// POST /inference/v1/completions: token ids or a text in, token ids and both log-probabilities of each out, whole or as a stream.
#include "api/errors.h"
#include "api/fireworks/completion_answer.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/worker.h"
#include "base/server_paths.h"

namespace lockstep {
namespace {

SamplerWeights weights_called(const TrainingCall& call, const std::string& model) {
  if (model.empty()) fail_field("model", "is missing");
  try {
    return call.service.control().weights(call.owner, model);
  } catch (const Error& e) {
    throw RequestError(e.code(), "model", without_server_paths(e.message()));
  }
}

void complete(const TrainingCall& call, const std::weak_ptr<Worker>& long_writer) {
  FireworksCompletion wanted = decode_fireworks_completion(call.json());
  SamplerWeights weights = weights_called(call, wanted.sampling.model);
  const auto deployment = call.service.control().deployments.find(call.owner, wanted.sampling.model);
  complete_fireworks({.request_id = call.request.request_id,
                      .owner = call.owner,
                      .came = call.came,
                      .out = call.out,
                      .long_writer = long_writer,
                      .guesses = !deployment || deployment->guesses},
                     call.service.shared_generation(), std::move(wanted), std::move(weights.weights), std::move(weights.adapter),
                     call.service.base().opened.model->facts().expert_shape());
}
}  // namespace

void add_completion_routes(TrainingRoutes& routes) {
  constexpr std::size_t kMostLongAnswers = 1024;
  const auto writer = std::make_shared<Worker>(kMostLongAnswers, 0);
  for (const char* prefix : {"", "/training/v1/serverless"})
    routes.add_decoded("POST", fmt::format("{}/inference/v1/completions", prefix), [writer](const TrainingCall& call) { complete(call, writer); });
}

}  // namespace lockstep
