#include "api/openai/completion_answer.h"

#include "api/openai/answer_constraint.h"
#include "api/openai/answer_run.h"
#include "api/openai/keep_field.h"
#include "api/openai/service_tier.h"
#include "serving/deployments.h"
#include "serving/model_name.h"

namespace lockstep {

std::shared_ptr<const AdapterWeights> require_model(const GenerationService& service, const std::string& model, const std::string& field) {
  if (model.empty() || model == service.model().name()) return nullptr;  // left out: the server's own
  const ModelName parts = parse_model_name(model);                       // NAME#ADAPTER
  const std::string& wanted = parts.deployment == service.model().name() && !parts.adapter.empty() ? parts.adapter : model;
  if (const std::optional<NamedAdapter> adapter = service.adapters().find(wanted)) return adapter->weights;
  std::vector<std::string> names = service.adapters().names();
  names.insert(names.begin(), service.model().name());
  const std::string shown = model.substr(0, 80) + (model.size() > 80 ? "..." : "");
  throw RequestError(ErrorCode::not_found, field,
                     fmt::format("model '{}' is not served here; known {} '{}'{}", shown, names.size() > 1 ? "are" : "is", fmt::join(names, "', '"),
                                 did_you_mean(model, names)),
                     0, "model_not_found");
}

void answer_completion(const std::shared_ptr<GenerationService>& service, CompletionRequest request, const std::string& owner,
                       const std::shared_ptr<Responder>& responder, const std::weak_ptr<Worker>& long_writer, const std::weak_ptr<HeldStreams>& streams) {
  const std::shared_ptr<const AdapterWeights> adapter = require_model(*service, request.sampling.model);
  const Tokenizer& tokenizer = service->model().tokenizer();
  SamplingFields& s = request.sampling;
  if (s.response_format.kind != ResponseFormat::Kind::text) hold_stops_to_grammar(*service, s, "response_format");
  AnswerOrder order;
  order.completion = order_of(s, request.logprobs.value_or(0), "logprobs");
  CompletionOrder& completion = order.completion;
  for (CompletionRequest::Prompt& prompt : request.prompts) {
    if (prompt.is_text) prompt.ids = tokenizer.encode(prompt.text, request.add_special_tokens);
    completion.prompts.push_back({std::move(prompt.ids), std::move(prompt.field)});
  }
  if (!completion.max_tokens) completion.max_tokens = CompletionRequest::kDefaultMaxTokens;
  completion.make_constraint = format_constraint(service, s.response_format, false);
  completion.prompt_logprobs = request.echo && request.logprobs.has_value();
  const Callers& callers = service->callers();
  completion.prefix_owner = callers.prefix_owner(owner);
  completion.account = callers.account(owner, class_of_tier(s.service_tier, callers.class_of(owner)));
  completion.keep_forward = kept_as_asked(*service, owner, s.keep_forward);
  completion.adapter = adapter;
  order.model = s.model;
  order.stream = s.stream;
  order.hold = {owner, s.hold.seconds, streams};
  order.long_writer = long_writer;
  if (request.echo) order.echo = AnswerOrder::kWholePrompt;
  order.shape = {.logprobs = request.logprobs.has_value(),
                 .top_logprobs = request.logprobs.value_or(0) > 0,
                 .token_ids = s.return_token_ids.value_or(true),
                 .prompt_token_ids = s.return_token_ids.value_or(false),
                 .text_offsets = request.logprobs.has_value(),
                 .usage_in_parts = s.include_usage};
  auto writer = std::make_unique<CompletionWriter>(tokenizer, order.shape);
  std::make_shared<AnswerRun>(service, std::move(order), std::move(writer), responder)->start();
}

}  // namespace lockstep
