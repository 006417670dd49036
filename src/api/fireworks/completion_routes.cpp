// POST /inference/v1/completions: token ids in, token ids and both log-probabilities of each out, as one event stream.
#include <cmath>

#include "api/errors.h"
#include "api/fireworks/fireworks_routes.h"
#include "api/sampling_values.h"
#include "base/entropy.h"
#include "base/seconds.h"
#include "service/training/routing_matrix.h"

namespace lockstep {
namespace {

struct CompletionOrder {
  Request request;
  std::string model;
  bool echo = false, stream = true, logprobs = false;
  std::int64_t echo_last = -1;  // of the prompt's tokens; -1: all
  std::int64_t top_logprobs = 0;
  std::vector<std::string> stops;
};

std::vector<std::string> stop_texts(const TrainingJson& value, const std::string& field) {
  constexpr std::size_t kMostStops = 64;
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array() || value.size() > kMostStops) fail_field(field, fmt::format("is {}, allowed is a text or a list of at most {}", describe_json(value), kMostStops));
  std::vector<std::string> stops;
  for (const TrainingJson& stop : value) stops.push_back(json_text(stop, fmt::format("{}[{}]", field, stops.size())));
  return stops;
}

CompletionOrder completion_order(const TrainingJson& json, const TrainingService& service) {
  CompletionOrder out;
  out.model = required_text(json, "model");
  out.stream = boolean_field(json, "stream", false);
  if (const std::int64_t n = integer_field(json, "n", 1); n != 1) fail_value("n", fmt::format("is {}, allowed is 1; several samples are several requests", n));
  if (!json.contains("prompt") || json["prompt"].is_null()) fail_value("prompt", "is missing");
  const std::int64_t vocabulary = service.base().opened.loaded.model->vocabulary;
  SamplingParameters& s = out.request.sampling;
  s.seed = random_seed();
  std::int64_t max_tokens = 16;
  const auto read = [&](const char* name, const auto& reader) { read_value(json, name, {}, reader); };
  read("prompt", [&](const TrainingJson& value, const std::string& field) { out.request.prompt = json_token_ids(value, field, vocabulary - 1); });
  read("temperature", [&](const TrainingJson& value, const std::string& field) { s.temperature = temperature_value(value, field); });
  read("top_p", [&](const TrainingJson& value, const std::string& field) { s.top_p = top_p_value(value, field); });
  read("top_k", [&](const TrainingJson& value, const std::string& field) { s.top_k = top_k_value(value, field); });
  read("seed", [&](const TrainingJson& value, const std::string& field) { s.seed = seed_value(value, field); });
  read("max_tokens", [&](const TrainingJson& value, const std::string& field) { max_tokens = json_integer(value, field, 0, kMostId); });
  read("echo_last", [&](const TrainingJson& value, const std::string& field) { out.echo_last = json_integer(value, field, -1, kMostId); });
  read("stop", [&](const TrainingJson& value, const std::string& field) { out.stops = stop_texts(value, field); });
  out.echo = boolean_field(json, "echo", false);
  out.logprobs = json.contains("logprobs") && !json["logprobs"].is_null() && json["logprobs"] != false;
  out.top_logprobs = integer_field(json, "top_logprobs", 0);
  if (out.top_logprobs < 0 || out.top_logprobs > SamplingParameters::kMaxTopLogprobs) fail_value("top_logprobs", fmt::format("is {}, allowed is 0 to {}", out.top_logprobs, SamplingParameters::kMaxTopLogprobs));
  s.top_logprobs = static_cast<std::int32_t>(out.top_logprobs);
  out.request.prompt_logprobs = out.echo || out.echo_last >= 0;
  const std::int64_t room = service.base().opened.runtime->max_positions - static_cast<std::int64_t>(out.request.prompt.size());
  s.max_tokens = static_cast<std::int32_t>(std::min(max_tokens, std::max<std::int64_t>(room, 0)));  // as far as the context reaches
  // Of a model without experts there is nothing to tell: its rows have no such field.
  out.request.experts = boolean_field(json, "include_routing_matrix", false) && service.base().opened.loaded.model->expert_shape().row() > 0;
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

TrainingJson completion_json(const TrainingService& service, const CompletionOrder& order, const Generation& generation, double seconds, const std::string& id) {
  const Tokenizer* tokenizer = service.base().opened.tokenizer.get();
  TrainingJson rows = TrainingJson::array(), ids = TrainingJson::array();
  const std::size_t prompt = order.request.prompt.size();
  const ExpertShape shape = service.base().opened.loaded.model->expert_shape();
  // A token's matrix is that of the row it was chosen from, as its log-probabilities are: the first has none.
  const auto add_row = [&](TrainingJson row, const std::vector<std::uint16_t>& experts) {
    if (order.request.experts) row["routing_matrix"] = routing_matrix(shape, experts);
    rows.push_back(std::move(row));
  };
  const std::size_t told = order.echo ? prompt : order.echo_last >= 0 ? std::min(prompt, static_cast<std::size_t>(order.echo_last)) : 0;
  for (std::size_t i = prompt - told; i < prompt; ++i) {
    const float logprob = i == 0 ? 0.0f : generation.prompt_logprobs[i - 1];  // nothing stands before the first
    ids.push_back(order.request.prompt[i]);
    add_row(row_json(tokenizer, order.request.prompt[i], logprob, logprob, i > 0 && order.top_logprobs > 0 ? generation.prompt_top_logprobs[i - 1] : std::vector<TokenLogprob>{}),
            i > 0 && order.request.experts ? generation.prompt_experts[i - 1] : std::vector<std::uint16_t>{});
  }
  std::string text;
  std::vector<std::int32_t> generated;
  for (const GeneratedToken& t : generation.tokens) {
    ids.push_back(t.id);
    generated.push_back(t.id);
    add_row(row_json(tokenizer, t.id, t.raw_logprob, t.sampling_logprob, t.top), t.experts);
  }
  if (tokenizer) text = tokenizer->decode(generated, true);
  TrainingJson choice{{"index", 0}, {"text", text}, {"finish_reason", generation.finish == FinishReason::stop ? "stop" : "length"}, {"raw_output", {{"completion_token_ids", ids}, {"prompt_token_ids", order.request.prompt}}}};
  choice["logprobs"] = {{"content", rows}};
  const auto number = [](double value) { return fmt::format("{:.6f}", value); };
  return {{"id", id},
          {"object", "text_completion"},
          {"model", order.model},
          {"choices", {choice}},
          {"usage", {{"prompt_tokens", prompt}, {"completion_tokens", generated.size()}, {"total_tokens", prompt + generated.size()}}},
          {"perf_metrics", {{"prefill-queue-duration", "0.000000"}, {"server-processing-time", number(seconds)}, {"prompt-tokens", std::to_string(prompt)}, {"cached-prompt-tokens", std::to_string(generation.cached_tokens)},
                            {"num-concurrent-requests", std::to_string(std::max<std::int64_t>(service.generation().open(), 1))}}}};
}

void complete(const TrainingCall& call) {
  auto order = std::make_shared<CompletionOrder>(completion_order(call.json(), call.service));
  const SamplerWeights weights = call.service.control().weights(call.owner, order->model);
  order->request.weights = weights.weights;
  order->request.adapter = weights.adapter;
  order->request.prefix_owner = call.service.generation().prefix_owner(call.owner);
  GenerationService& generation = call.service.generation();
  order->request.sampling.stop_tokens = generation.end_tokens();
  GenerationService::OnToken on_token;
  if (!order->stops.empty())
    on_token = [order, tokenizer = call.service.base().opened.tokenizer, text = std::string()](const GeneratedToken& t) mutable {
      if (!tokenizer) return true;
      text += tokenizer->token_bytes(t.id);
      return std::none_of(order->stops.begin(), order->stops.end(), [&](const std::string& stop) { return !stop.empty() && text.find(stop) != std::string::npos; });
    };
  Request request = order->request;
  generation.generate(std::move(request), std::move(on_token), [out = call.out, service = &call.service, order, id = call.request.request_id, began = std::chrono::steady_clock::now()](Generation&& g) {
    if (g.finish == FinishReason::error || g.finish == FinishReason::cancelled) {
      const bool error = g.finish == FinishReason::error;
      out->send({error ? 400 : 503, "application/json", TrainingJson{{"error", {{"message", error ? g.error : "the server stops"}, {"code", error ? "invalid_request" : "unavailable"}}}}.dump(-1, ' ', false, TrainingJson::error_handler_t::replace), {}});
      return;
    }
    const std::string json = completion_json(*service, *order, g, seconds_since(began), id).dump(-1, ' ', false, TrainingJson::error_handler_t::replace);
    if (!order->stream) return out->send({200, "application/json", json, {}});
    out->begin_stream("text/event-stream");
    out->stream("data: " + json + "\n\ndata: [DONE]\n\n");
    out->end_stream();
  });
}
}  // namespace

void add_completion_routes(TrainingRoutes& routes) {
  for (const char* prefix : {"", "/training/v1/serverless"})
    routes.add_at_root("POST", fmt::format("{}/inference/v1/completions", prefix), complete);
}

}  // namespace lockstep
