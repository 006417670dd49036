#include "api/fireworks/completion_answer.h"

#include "api/fireworks/completion_writer.h"
#include "api/openai/answer_constraint.h"

namespace lockstep {

void complete_fireworks(const FireworksCaller& caller, const std::shared_ptr<GenerationService>& generation, FireworksCompletion&& wanted,
                        std::shared_ptr<const WeightSet> weights, std::shared_ptr<const AdapterWeights> adapter, const ExpertShape& experts) {
  SamplingFields& s = wanted.sampling;
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
  completion.prompt_logprobs = wanted.has_rows() && wanted.echoed(length) > 0;
  // Of a model without experts there is nothing to tell: its rows have no such field.
  completion.experts = wanted.routing_matrices && experts.row() > 0;
  completion.kept_tokens = wanted.kept_tokens;
  completion.spelling["kept_tokens"] = "include_kept_tokens";
  order.model = s.model;
  order.stream = s.stream;
  order.echo = wanted.echoed(length);
  order.long_writer = caller.long_writer;
  order.broken = ErrorCode::invalid_argument;  // the package asks again for what is the server's fault, and would get the same
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

}  // namespace lockstep
