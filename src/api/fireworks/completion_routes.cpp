// POST /inference/v1/completions: token ids or a text in, token ids and both log-probabilities of each out, whole or as a stream.
#include "api/errors.h"
#include "api/fireworks/completion_request.h"
#include "api/fireworks/completion_writer.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/openai/answer_constraint.h"
#include "api/openai/answer_run.h"
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
  SamplingFields& s = wanted.sampling;
  const std::shared_ptr<GenerationService>& generation = call.service.shared_generation();
  SamplerWeights weights = weights_called(call, s.model);
  if (s.response_format.kind != ResponseFormat::Kind::text) hold_stops_to_grammar(*generation, s, "response_format");
  AnswerOrder order;
  order.completion = order_of(s, wanted.top_logprobs, wanted.top_logprobs_field);
  CompletionOrder& completion = order.completion;
  completion.prompts.push_back(
      {wanted.prompt_text ? generation->model().tokenizer().encode(*wanted.prompt_text, wanted.add_special_tokens) : std::move(wanted.prompt),
       wanted.prompt_field});
  const std::size_t length = completion.prompts.front().ids.size();
  if (const auto deployment = call.service.control().deployments.find(call.owner, s.model); deployment && !deployment->guesses && !completion.drafts.mode)
    completion.drafts.mode = "off";
  if (!completion.max_tokens) completion.max_tokens = FireworksCompletion::kDefaultMaxTokens;
  completion.shorten = wanted.shorten;
  completion.make_constraint = format_constraint(generation, s.response_format, false);
  completion.weights = std::move(weights.weights);
  completion.adapter = std::move(weights.adapter);
  completion.prefix_owner = generation->prefix_owner(call.owner);
  completion.account = generation->account(call.owner, WorkClass::rollouts);
  completion.prompt_logprobs = wanted.has_rows() && wanted.echoed(length) > 0;
  // Of a model without experts there is nothing to tell: its rows have no such field.
  const ExpertShape experts = call.service.base().opened.model->facts().expert_shape();
  completion.experts = wanted.routing_matrices && experts.row() > 0;
  completion.kept_tokens = wanted.kept_tokens;
  completion.spelling["kept_tokens"] = "include_kept_tokens";
  order.model = s.model;
  order.stream = s.stream;
  order.echo = wanted.echoed(length);
  order.long_writer = long_writer;
  order.broken = ErrorCode::invalid_argument;  // the package asks again for what is the server's fault, and would get the same
  order.shape = {.logprobs = wanted.has_rows(), .top_logprobs = wanted.top_logprobs > 0, .token_ids = true, .echo_ids = wanted.raw_output};
  FireworksShape shape{.id = call.request.request_id,
                       .model = s.model,
                       .rows = wanted.has_rows(),
                       .top_logprobs = wanted.top_logprobs > 0,
                       .routing_matrices = completion.experts,
                       .kept_tokens = wanted.kept_tokens,
                       .raw_output = wanted.raw_output,
                       .token_ids = s.return_token_ids.value_or(false),
                       .perf_metrics = wanted.perf_metrics,
                       .experts = experts,
                       .came = call.came,
                       .open = generation->bounds().open() + 1};
  auto writer = std::make_unique<FireworksWriter>(generation->model().has_tokenizer() ? &generation->model().tokenizer() : nullptr, std::move(shape));
  std::make_shared<AnswerRun>(generation, std::move(order), std::move(writer), call.out)->start();
}
}  // namespace

void add_completion_routes(TrainingRoutes& routes) {
  constexpr std::size_t kMostLongAnswers = 1024;
  const auto writer = std::make_shared<Worker>(kMostLongAnswers, 0);
  for (const char* prefix : {"", "/training/v1/serverless"})
    routes.add_decoded("POST", fmt::format("{}/inference/v1/completions", prefix), [writer](const TrainingCall& call) { complete(call, writer); });
}

}  // namespace lockstep
