// POST /inference/v1/completions: token ids or a text in, token ids and both log-probabilities of each out, as one event stream. How long
// each part took is measured, and told: the package's sampler opens and closes its window of requests by it.
#include <algorithm>

#include "api/errors.h"
#include "api/fireworks/completion_request.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/openai/answer_constraint.h"
#include "base/entropy.h"
#include "base/server_paths.h"
#include "service/context_limit.h"
#include "service/stop_texts.h"
#include "service/text_stream.h"
#include "service/training/routing_matrix.h"

namespace lockstep {
namespace {
using Clock = std::chrono::steady_clock;

// One completion under way.
struct CompletionOrder {
  FireworksCompletion wanted;
  Request request;
  std::string id;
  Clock::time_point came;
  std::int64_t open = 0;  // requests under way when it came, with it
};

std::vector<std::int32_t> prompt_of(const FireworksCompletion& wanted, const GenerationService& generation) {
  return wanted.prompt_text ? generation.tokenizer().encode(*wanted.prompt_text, wanted.add_special_tokens) : wanted.prompt;
}

// As many as are asked for, or as the context leaves.
std::int64_t tokens_of(const FireworksCompletion& wanted, std::size_t prompt, std::int64_t context) {
  const std::int64_t asked = wanted.sampling.max_tokens.value_or(FireworksCompletion::kDefaultMaxTokens), room = context - static_cast<std::int64_t>(prompt);
  if (asked > room && !wanted.shorten)
    throw RequestError(ErrorCode::invalid_argument, wanted.sampling.max_tokens_field,
                       fmt::format("{} is {} behind a prompt of {} tokens; this model's maximum context length is {} tokens", wanted.sampling.max_tokens_field, asked, prompt, context), 400, "context_length_exceeded");
  return std::min(asked, std::max<std::int64_t>(room, 0));
}

SamplerWeights weights_called(const TrainingCall& call, const std::string& model) {
  if (model.empty()) fail_field("model", "is missing");
  try {
    return call.service.control().weights(call.owner, model);
  } catch (const Error& e) {
    throw RequestError(e.code(), "model", without_server_paths(e.message()));
  }
}

std::shared_ptr<CompletionOrder> completion_order(const TrainingCall& call) {
  auto out = std::make_shared<CompletionOrder>();
  out->wanted = decode_fireworks_completion(call.json());
  const FireworksCompletion& wanted = out->wanted;
  const SamplingFields& s = wanted.sampling;
  const std::shared_ptr<GenerationService>& generation = call.service.shared_generation();
  const SamplerWeights weights = weights_called(call, s.model);
  Request& request = out->request;
  request.weights = weights.weights;
  request.adapter = weights.adapter;
  request.prefix_owner = generation->prefix_owner(call.owner);
  request.prompt = prompt_of(wanted, *generation);
  const bool constrained = s.response_format.kind != ResponseFormat::Kind::text;
  if (constrained) hold_stops_to_grammar(*generation, out->wanted.sampling, "response_format");
  const MakeConstraint make = format_constraint(generation, s.response_format, false);
  const std::vector<std::int32_t> ends = ends_of(*generation, s, constrained);
  request.sampling = sampling_parameters(s, s.seed.value_or(random_seed()), tokens_of(wanted, request.prompt.size(), longest_request(generation->limits())), ends, wanted.top_logprobs);
  request.sampling.constraint = constraint_of_choice(*generation, s, make, ends);
  request.prompt_logprobs = wanted.has_rows() && wanted.echoed(request.prompt.size()) > 0;
  // Of a model without experts there is nothing to tell: its rows have no such field.
  request.experts = wanted.routing_matrices && call.service.base().opened.loaded.model->facts().expert_shape().row() > 0;
  out->id = call.request.request_id;
  out->came = call.came;
  return out;
}

TrainingJson row_json(const Tokenizer* tokenizer, std::int32_t id, float raw, float sampling, const std::vector<TokenLogprob>& top) {
  TrainingJson row{{"token", tokenizer ? tokenizer->token_bytes(id) : std::string()}, {"token_id", id}, {"logprob", raw}, {"sampling_logprob", sampling}};
  if (!top.empty()) {
    row["top_logprobs"] = TrainingJson::array();
    for (const TokenLogprob& one : top) row["top_logprobs"].push_back({{"token_id", one.id}, {"logprob", one.logprob}});
  }
  return row;
}

// A row a token of the answer: the prompt's that are echoed, then those generated.
TrainingJson completion_rows(const TrainingService& service, const CompletionOrder& order, const Generation& generation) {
  const Tokenizer* tokenizer = service.base().opened.tokenizer.get();
  const ExpertShape shape = service.base().opened.loaded.model->facts().expert_shape();
  TrainingJson rows = TrainingJson::array();
  // A token's matrix is that of the row it was chosen from, as its log-probabilities are: the first has none.
  const auto add = [&](TrainingJson row, const std::vector<std::uint16_t>& experts) {
    if (order.request.experts) row["routing_matrix"] = routing_matrix(shape, experts);
    rows.push_back(std::move(row));
  };
  const std::vector<std::int32_t>& prompt = order.request.prompt;
  for (std::size_t i = prompt.size() - order.wanted.echoed(prompt.size()); i < prompt.size(); ++i) {
    const float logprob = i == 0 ? 0.0f : generation.prompt_logprobs[i - 1];  // nothing stands before the first
    std::vector<TokenLogprob> top;
    if (order.wanted.top_logprobs > 0) top = i == 0 ? std::vector<TokenLogprob>{{prompt[0], 0.0f}} : generation.prompt_top_logprobs[i - 1];
    add(row_json(tokenizer, prompt[i], logprob, logprob, top), i > 0 && order.request.experts ? generation.prompt_experts[i - 1] : std::vector<std::uint16_t>{});
  }
  for (const GeneratedToken& t : generation.tokens) add(row_json(tokenizer, t.id, t.raw_logprob, t.sampling_logprob, t.top), t.experts);
  return rows;
}

// Names and values as the package's ServerMetrics reads them. What did not come to pass has none.
HeaderList measured(const CompletionOrder& order, const Generation& generation) {
  HeaderList out;
  const Clock::time_point now = Clock::now();
  const GenerationTimes& times = generation.times;
  const auto add = [&](const char* name, Clock::time_point from, Clock::time_point to) {
    if (from != Clock::time_point{} && to != Clock::time_point{}) out.emplace_back(name, fmt::format("{:.6f}", std::chrono::duration<double>(to - from).count()));
  };
  add("prefill-queue-duration", order.came, times.began);
  add("prefill-duration", times.began, times.first_token);
  add("server-time-to-first-token", order.came, times.first_token);
  add("generation-duration", times.first_token, now);
  add("server-processing-time", order.came, now);
  out.emplace_back("prompt-tokens", std::to_string(order.request.prompt.size()));
  out.emplace_back("cached-prompt-tokens", std::to_string(generation.cached_tokens));
  out.emplace_back("num-concurrent-requests", std::to_string(order.open));
  return out;
}

TrainingJson completion_json(const TrainingService& service, const CompletionOrder& order, const Generation& generation, const HeaderList& metrics) {
  const FireworksCompletion& wanted = order.wanted;
  const Tokenizer* tokenizer = service.base().opened.tokenizer.get();
  const std::vector<std::int32_t>& prompt = order.request.prompt;
  const auto echoed = static_cast<std::ptrdiff_t>(wanted.echoed(prompt.size()));
  std::vector<std::int32_t> ids(prompt.end() - echoed, prompt.end()), generated;
  for (const GeneratedToken& t : generation.tokens) generated.push_back(t.id);
  std::string text;
  if (tokenizer) {
    const bool hidden = wanted.sampling.skip_special_tokens;
    text = tokenizer->decode(ids, hidden);
    TextStream stream(*tokenizer, wanted.sampling.stop, hidden ? SpecialText::hidden : SpecialText::shown);
    stream.begin_after(prompt);
    for (const std::int32_t id : generated) text += stream.push(id);
    text += stream.flush();
  }
  ids.insert(ids.end(), generated.begin(), generated.end());
  TrainingJson choice{{"index", 0}, {"text", text}, {"finish_reason", generation.finish == FinishReason::stop ? "stop" : "length"}};
  if (wanted.raw_output) choice["raw_output"] = {{"completion_token_ids", ids}, {"prompt_token_ids", prompt}};
  if (wanted.sampling.return_token_ids.value_or(false)) {
    choice["prompt_token_ids"] = prompt;
    choice["token_ids"] = generated;
  }
  choice["logprobs"] = wanted.has_rows() ? TrainingJson{{"content", completion_rows(service, order, generation)}} : TrainingJson();
  TrainingJson json{{"id", order.id},
                    {"object", "text_completion"},
                    {"created", static_cast<std::int64_t>(unix_now())},
                    {"model", wanted.sampling.model},
                    {"choices", {choice}},
                    {"usage", {{"prompt_tokens", prompt.size()}, {"completion_tokens", generated.size()}, {"total_tokens", prompt.size() + generated.size()}, {"prompt_tokens_details", {{"cached_tokens", generation.cached_tokens}}}}}};
  if (wanted.perf_metrics)
    for (const auto& [name, value] : metrics) json["perf_metrics"][name] = value;
  return json;
}

void answer_completed(const TrainingService& service, const CompletionOrder& order, const Generation& generation, Responder& out) {
  if (generation.finish == FinishReason::error || generation.finish == FinishReason::cancelled) {
    const bool error = generation.finish == FinishReason::error;
    throw RequestError(error ? ErrorCode::invalid_argument : ErrorCode::cancelled, {}, error ? generation.error : "the server is stopping; the request was not finished");  // a client that left reads nothing
  }
  const HeaderList metrics = measured(order, generation);
  const std::string json = completion_json(service, order, generation, metrics).dump(-1, ' ', false, TrainingJson::error_handler_t::replace);
  if (order.wanted.sampling.stream) {
    out.begin_stream("text/event-stream");
    out.stream("data: " + json + "\n\ndata: [DONE]\n\n");
    return out.end_stream();
  }
  ApiResponse response{200, "application/json", json, {}};
  for (const auto& [name, value] : metrics) response.headers.emplace_back("fireworks-" + name, value);
  out.send(std::move(response));
}

void complete(const TrainingCall& call) {
  const std::shared_ptr<CompletionOrder> order = completion_order(call);
  const std::shared_ptr<GenerationService>& generation = call.service.shared_generation();
  GenerationService::OnToken on_token;
  if (!order->wanted.sampling.stop.empty()) {
    generation->tokenizer();  // an error without one
    on_token = [stops = StopTexts(call.service.base().opened.tokenizer, order->wanted.sampling.stop)](const GeneratedToken& t) mutable { return !stops.ended_by(t.id); };
  }
  order->open = generation->open() + 1;
  const std::uint64_t id = generation->generate(order->request, std::move(on_token), [out = call.out, service = &call.service, order](Generation&& g) {
    try {
      answer_completed(*service, *order, g, *out);
    } catch (const std::exception& e) {
      out->send(error_response(e));
    }
  });
  call.out->on_abandoned([id, weak = std::weak_ptr(generation)] {
    if (const auto service = weak.lock()) service->cancel(id);
  });
}
}  // namespace

void add_completion_routes(TrainingRoutes& routes) {
  for (const char* prefix : {"", "/training/v1/serverless"})
    routes.add_decoded("POST", fmt::format("{}/inference/v1/completions", prefix), complete);
}

}  // namespace lockstep
