#include "api/fireworks/completion_routes.h"

#include "api/errors.h"
#include "api/fireworks/completion_writer.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/openai/answer_constraint.h"
#include "api/openai/keep_field.h"
#include "api/worker.h"
#include "base/server_paths.h"

namespace lockstep {
namespace {

struct CalledModel {
  SamplerWeights weights;
  std::optional<Deployment> deployment;  // none: the model's name means no deployment
  bool of_checkpoint = false;            // its weights are a checkpoint of the caller's, which it may train further
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
    called.of_checkpoint = called.weights.weights && (called.deployment ? !called.deployment->checkpoint.empty() : !control.models.find(call.owner, model));
    return called;
  } catch (const Error& e) {
    throw RequestError(e.code(), "model", without_server_paths(e.message()));
  }
}

void complete(const TrainingCall& call, const std::weak_ptr<Worker>& long_writer, const std::shared_ptr<HeldStreams>& streams) {
  FireworksCompletion wanted = decode_fireworks_completion(call.json());
  CalledModel called = called_model(call, wanted.sampling.model);
  complete_fireworks({.request_id = call.request.request_id,
                      .owner = call.owner,
                      .came = call.came,
                      .out = call.out,
                      .long_writer = long_writer,
                      .guesses = !called.deployment || called.deployment->guesses,
                      .hold = {.owner = call.request.key_name, .streams = streams},
                      .identity = called.deployment ? called.deployment->identity : std::string(),
                      .trains = called.of_checkpoint},
                     call.service.shared_generation(), std::move(wanted), std::move(called.weights.weights), std::move(called.weights.adapter),
                     call.service.base().opened.model->facts().expert_shape());
}
}  // namespace

void complete_fireworks(const FireworksCaller& caller, const std::shared_ptr<GenerationService>& generation, FireworksCompletion&& wanted,
                        std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter, const ExpertShape& experts) {
  SamplingFields& s = wanted.sampling;
  if (s.hold.order.any() && caller.hold.streams.expired()) fail_field("hold", "is given, and this server has no streams that are held", ErrorCode::unsupported);
  if (s.response_format.kind != ResponseFormat::Kind::text) hold_stops_to_grammar(*generation, s, "response_format");
  AnswerOrder order;
  order.completion = order_of(s, wanted.top_logprobs, wanted.top_logprobs_field);
  CompletionOrder& completion = order.completion;
  completion.prompts.push_back(
      {wanted.prompt_text ? generation->model().tokenizer().encode(*wanted.prompt_text, wanted.add_special_tokens) : std::move(wanted.prompt),
       wanted.prompt_field});
  const std::size_t length = completion.prompts.front().ids.size();
  if (!caller.guesses && !completion.drafts.mode) completion.drafts.mode = "off";
  if (!completion.max_tokens) completion.max_tokens = FireworksCompletion::kDefaultMaxTokens;
  completion.shorten = wanted.shorten;
  completion.make_constraint = format_constraint(generation, s.response_format, false);
  completion.weights = std::move(weights);
  completion.adapter = std::move(adapter);
  completion.prefix_owner = generation->callers().prefix_owner(caller.owner);
  completion.account = generation->callers().account(caller.owner, WorkClass::rollouts);
  completion.keep_forward = kept_as_asked(*generation, caller.owner, s.keep_forward, caller.trains);
  completion.prompt_logprobs = wanted.has_rows() && wanted.echoed(length) > 0;
  // Of a model without experts there is nothing to tell: its rows have no such field.
  completion.experts = wanted.routing_matrices && experts.row() > 0;
  completion.kept_tokens = wanted.kept_tokens;
  completion.spelling["kept_tokens"] = "include_kept_tokens";
  order.model = s.model;
  order.stream = s.stream;
  order.echo = wanted.echoed(length);
  order.long_writer = caller.long_writer;
  order.hold = caller.hold;
  order.hold.seconds = s.hold.seconds;
  order.broken = ErrorCode::invalid_argument;  // the package repeats a request after a server's error, and would get the same again
  order.shape = {.logprobs = wanted.has_rows(), .top_logprobs = wanted.top_logprobs > 0, .token_ids = true, .echo_ids = wanted.raw_output};
  FireworksShape shape{.id = caller.request_id,
                       .model = s.model,
                       .identity = caller.identity,
                       .rows = wanted.has_rows(),
                       .top_logprobs = wanted.top_logprobs > 0,
                       .routing_matrices = completion.experts,
                       .kept_tokens = wanted.kept_tokens,
                       .raw_output = wanted.raw_output,
                       .token_ids = s.return_token_ids.value_or(false),
                       .perf_metrics = wanted.perf_metrics,
                       .experts = experts,
                       .came = caller.came,
                       .open = generation->bounds().open() + 1};
  auto writer = std::make_unique<FireworksWriter>(generation->model().has_tokenizer() ? &generation->model().tokenizer() : nullptr, std::move(shape));
  std::make_shared<AnswerRun>(generation, std::move(order), std::move(writer), caller.out)->start();
}

void add_completion_routes(TrainingRoutes& routes, const std::shared_ptr<HeldStreams>& streams) {
  constexpr std::size_t kMostLongAnswers = 1024;
  const auto writer = std::make_shared<Worker>(kMostLongAnswers, 0);
  for (const char* prefix : {"", "/training/v1/serverless"})
    routes.add_decoded(
        "POST", fmt::format("{}/inference/v1/completions", prefix), [writer, streams](const TrainingCall& call) { complete(call, writer, streams); },
        kDrainingStatus);
}

}  // namespace lockstep
