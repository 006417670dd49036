#include "api/fireworks/model_completions.h"

#include <optional>

#include "api/errors.h"
#include "api/fireworks/completion_routes.h"
#include "api/fireworks/resource_names.h"
#include "api/openai/completion_answer.h"
#include "api/openai/requested_model.h"
#include "api/openai/sleeping_model.h"
#include "api/worker.h"
#include "serving/model_name.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostModelAnswers = 1024;  // long ones that wait to be written

struct ModelCompletions {
  std::shared_ptr<const Deployments> deployments;
  std::shared_ptr<Worker> writer;
  std::shared_ptr<HeldStreams> streams;
  std::shared_ptr<HostedDeployments> hosted;
  RequestPool& pool;
};

// The model of a deployment that the client made, by the names that Fireworks' clients give it.
std::optional<std::string> model_of_hosted(const ModelCompletions& with, const std::string& owner, const std::string& model) {
  const std::size_t hash = model.find('#');
  const std::string name = hash == std::string::npos ? model : model.substr(hash + 1);
  if (!with.hosted || !name.starts_with("accounts/")) return std::nullopt;
  const std::optional<Deployment> made = with.hosted->find(owner, name);
  return made ? std::optional(model_label(made->base_model)) : std::nullopt;
}

// The server's own names come first, so that nothing is looked up for them.
CalledDeployment called_deployment(const ModelCompletions& with, const ApiRequest& request, const std::string& model) {
  if (with.deployments->is_single()) return with.deployments->call({}, {});
  const RequestedModel asked = read_requested_model(request.body, [](const std::string&) { return true; });
  std::optional<std::string> made;
  while (true) {
    try {
      return with.deployments->call(made.value_or(model), who_asks(request, asked));
    } catch (const Error& e) {
      if (!made && (made = model_of_hosted(with, request.owner, model))) continue;
      throw RequestError(e.code(), "model", e.message(), 0, "model_not_found");
    }
  }
}

// `called.service` is not null.
void complete_called(const ApiRequest& request, std::chrono::steady_clock::time_point came, const std::shared_ptr<Responder>& out, const ModelCompletions& with,
                     FireworksCompletion wanted, const CalledDeployment& called) {
  std::string& model = wanted.sampling.model;
  const std::shared_ptr<const AdapterWeights> adapter = require_model(*called.service, called.adapter);
  // An alias is answered by the name of the deployment that it meant.
  if (with.deployments->traffic().has(parse_model_name(model).deployment)) model = called.adapter.empty() ? called.name : called.name + "#" + called.adapter;
  const ExpertShape experts = called.service->model().expert_shape();
  complete_fireworks({.request_id = request.request_id,
                      .owner = request.owner,
                      .came = came,
                      .out = out,
                      .long_writer = with.writer,
                      .hold = {.owner = request.key_name, .streams = with.streams}},
                     called.service, std::move(wanted), nullptr, adapter, experts);
}

void complete_of_model(ApiRequest& request, std::chrono::steady_clock::time_point came, const std::shared_ptr<Responder>& out, const ModelCompletions& with) {
  FireworksCompletion wanted = decode_fireworks_completion(parse_object(request.body));
  if (wanted.sampling.model.empty()) fail_field("model", "is missing");
  CalledDeployment called = called_deployment(with, request, wanted.sampling.model);
  if (called.service) return complete_called(request, came, out, with, std::move(wanted), called);
  const auto loaded = [=, request = request](std::shared_ptr<GenerationService> service, const std::exception_ptr& fault) {
    CalledDeployment awake = called;
    awake.service = std::move(service);
    when_awake(with.pool, request, out, fault, [=](ApiRequest& r) { complete_called(r, came, out, with, wanted, awake); });
  };
  with.deployments->wake(called.name, loaded);
}
}  // namespace

void add_model_completions(Routes& routes, std::shared_ptr<const Deployments> deployments, std::shared_ptr<HeldStreams> streams,
                           std::shared_ptr<HostedDeployments> hosted) {
  const ModelCompletions with{std::move(deployments), std::make_shared<Worker>(kMostModelAnswers, 0), std::move(streams), std::move(hosted),
                              routes.lanes().large};
  routes.add({.method = "POST",
              .path = "/inference/v1/completions",
              .handler =
                  [with](ApiRequest& request, const std::shared_ptr<Responder>& out) {
                    const auto came = std::chrono::steady_clock::now();
                    with.pool.post(
                        std::move(request), out, [=](ApiRequest& r) { complete_of_model(r, came, out, with); },
                        [](const std::exception& e) { return error_response(e); });
                  },
              .draining_status = kDrainingStatus});
}

}  // namespace lockstep
