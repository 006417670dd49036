#include "api/openai/sampling_fields.h"

#include <charconv>
#include <limits>
#include <set>

#include "api/openai/service_tier.h"
#include "base/entropy.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostStopIds = 64;

std::vector<std::string> stop_strings(const Json& value, const std::string& field, std::size_t most) {
  std::vector<std::string> stops;
  if (value.is_string()) {
    stops.push_back(value.get<std::string>());
  } else {
    if (!value.is_array() || value.size() > most)
      fail_field(field, fmt::format("is {}, allowed is a string or an array of at most {}", describe_json(value), most));
    for (std::size_t i = 0; i < value.size(); ++i) stops.push_back(json_text(value[i], fmt::format("{}[{}]", field, i)));
  }
  for (const std::string& stop : stops)
    if (stop.empty() || stop.size() > 1000) fail_field(field, fmt::format("has a string of {} bytes, allowed is 1 to 1000", stop.size()));
  return stops;
}

// {"50256": -100}
std::vector<LogitBias> logit_biases(const Json& value, const std::string& field) {
  require_object(value, field);
  if (value.size() > SamplingParameters::kMaxLogitBias)
    fail_field(field, fmt::format("has {} tokens, allowed are at most {}", value.size(), SamplingParameters::kMaxLogitBias));
  std::vector<LogitBias> biases;
  std::set<std::int32_t> tokens;
  for (const auto& [key, bias] : value.items()) {
    std::int32_t token = -1;
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (fault != std::errc() || end != key.data() + key.size() || token < 0)
      fail_field(field, fmt::format("has the key {}, allowed are token ids", describe_json(Json(key))));
    if (!tokens.insert(token).second) fail_field(field, fmt::format("names token {} twice", token));
    if (!bias.is_number() || !(bias.get<double>() >= -100 && bias.get<double>() <= 100))
      fail_field(fmt::format("{}.{}", field, token), fmt::format("is {}, allowed is a number from -100 to 100", describe_json(bias)));
    biases.push_back({token, bias.get<float>()});
  }
  return biases;
}

}  // namespace

SamplingFields sampling_defaults(const GenerationDefaults& d) {
  SamplingFields s;
  s.temperature = d.temperature.value_or(s.temperature);
  s.top_p = d.top_p.value_or(s.top_p);
  s.min_p = d.min_p.value_or(s.min_p);
  s.repetition_penalty = d.repetition_penalty.value_or(s.repetition_penalty);
  s.presence_penalty = d.presence_penalty.value_or(s.presence_penalty);
  s.frequency_penalty = d.frequency_penalty.value_or(s.frequency_penalty);
  s.top_k = d.top_k.value_or(static_cast<std::int32_t>(s.top_k));
  return s;
}

ResponseFormat response_format_value(const Json& value, const std::string& field) {
  require_object(value, field);
  ResponseFormat format;
  std::string type;
  Json given;
  JsonFields fields;
  fields.text("type", &type);
  fields.custom("json_schema", [&](const Json& json, const std::string& name) {
    require_object(json, name);
    given = json;
  });
  fields.read(value, field + ".");
  if (type == "text") format.kind = ResponseFormat::Kind::text;
  else if (type == "json_object") format.kind = ResponseFormat::Kind::json_object;
  else if (type == "json_schema") format.kind = ResponseFormat::Kind::json_schema;
  else if (type.empty()) fail_field(field + ".type", "is missing, allowed are text, json_object and json_schema");
  else
    fail_field(field + ".type", fmt::format("is {}, allowed are text, json_object and json_schema{}", describe_json(Json(type)),
                                            did_you_mean(type, {"text", "json_object", "json_schema"})));
  if (format.kind != ResponseFormat::Kind::json_schema) {
    if (!given.is_null()) fail_field(field + ".json_schema", fmt::format("is given with type '{}', allowed is json_schema", type));
    return format;
  }
  if (given.is_null()) fail_field(field + ".json_schema", "is missing");
  bool strict = true;
  format.field = field + ".json_schema.schema";
  JsonFields inner;
  for (const char* label : {"name", "description"}) inner.harmless(label);
  inner.boolean("strict", &strict);  // the grammar holds always
  inner.custom("schema", [&](const Json& json, const std::string& at) {
    if (!json.is_object() && !json.is_boolean()) fail_field(at, fmt::format("is {}, allowed is a JSON schema", describe_json(json)));
    format.schema = json;
  });
  inner.read(given, field + ".json_schema.");
  if (format.schema.is_null()) fail_field(format.field, "is missing");
  return format;
}

void add_sampling_fields(JsonFields& fields, SamplingFields* s) {
  fields.text("model", &s->model);
  fields.integer("n", &s->n, 1, SamplingFields::kMostChoices);
  fields.integer("best_of", &s->best_of, 1, SamplingFields::kMostChoices);
  fields.integer("max_tokens", &s->max_tokens, 0, kMostId);
  fields.integer("min_tokens", &s->min_tokens, 0, kMostId);
  fields.custom("temperature", [s](const Json& value, const std::string& field) { s->temperature = temperature_value(value, field); });
  fields.custom("top_p", [s](const Json& value, const std::string& field) { s->top_p = top_p_value(value, field); });
  fields.custom("top_k", [s](const Json& value, const std::string& field) { s->top_k = top_k_value(value, field); });
  fields.number("min_p", &s->min_p, 0, 1);
  fields.number("presence_penalty", &s->presence_penalty, -2, 2);
  fields.number("frequency_penalty", &s->frequency_penalty, -2, 2);
  fields.number("repetition_penalty", &s->repetition_penalty, 0.01, 10);
  fields.custom("logit_bias", [s](const Json& value, const std::string& field) { s->logit_bias = logit_biases(value, field); });
  fields.custom("seed", [s](const Json& value, const std::string& field) { s->seed = seed_value(value, field); });
  fields.custom("stop", [s](const Json& value, const std::string& field) { s->stop = stop_strings(value, field, s->most_stops); });
  fields.custom("stop_token_ids", [s](const Json& value, const std::string& field) {
    if (!value.is_array() || value.size() > kMostStopIds)
      fail_field(field, fmt::format("is {}, allowed is an array of at most {} token ids", describe_json(value), kMostStopIds));
    s->stop_token_ids = json_token_ids(value, field);
  });
  fields.custom("response_format", [s](const Json& value, const std::string& field) { s->response_format = response_format_value(value, field); });
  fields.boolean("ignore_eos", &s->ignore_eos);
  fields.boolean("skip_special_tokens", &s->skip_special_tokens);
  fields.boolean("return_token_ids", &s->return_token_ids);
  fields.boolean("stream", &s->stream);
  fields.boolean("keep_forward", &s->keep_forward);
  fields.custom("stream_options", [s](const Json& value, const std::string& field) {
    require_object(value, field);
    JsonFields options;
    options.boolean("include_usage", &s->include_usage);
    options.harmless("include_obfuscation");
    options.read(value, field + ".");
  });
  add_draft_fields(fields, &s->drafts);
  add_service_tier(fields, &s->service_tier);
  // OpenAI's, for its own accounts and machines.
  for (const char* name : {"user", "metadata", "store", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}) fields.harmless(name);
}

void check_sampling_fields(const SamplingFields& s, std::size_t prompts) {
  if (s.best_of && *s.best_of != 1 && *s.best_of != s.n)
    fail_field("best_of", fmt::format("is {}, allowed is {}, which is n: every choice is returned", *s.best_of, s.n), ErrorCode::unsupported);
  const std::int64_t choices = static_cast<std::int64_t>(prompts) * s.n;
  if (choices > SamplingFields::kMostChoices)
    fail_field("n", fmt::format("is {} for {} prompts, allowed are at most {} choices a request", s.n, prompts, SamplingFields::kMostChoices));
  if (s.include_usage && !s.stream) fail_field("stream_options", "is given without \"stream\": true");
  if (s.max_tokens && s.min_tokens > *s.max_tokens)
    fail_field("min_tokens", fmt::format("is {}, allowed is at most {}, which is {}", s.min_tokens, *s.max_tokens, s.max_tokens_field));
}

CompletionOrder order_of(const SamplingFields& s, std::int64_t top_logprobs, const std::string& top_logprobs_field) {
  return {.samples = s.n,
          .sampling = {.temperature = s.temperature,
                       .top_p = s.top_p,
                       .top_k = static_cast<std::int32_t>(s.top_k),
                       .min_p = s.min_p,
                       .repetition_penalty = s.repetition_penalty,
                       .presence_penalty = s.presence_penalty,
                       .frequency_penalty = s.frequency_penalty,
                       .logit_bias = s.logit_bias,
                       .seed = s.seed ? *s.seed : random_seed(),
                       .attempt = static_cast<std::int32_t>(s.attempt),
                       .top_logprobs = static_cast<std::int32_t>(top_logprobs)},
          .max_tokens = s.max_tokens,
          .min_tokens = s.min_tokens,
          .stop_tokens = s.stop_token_ids,
          .model_ends = !s.ignore_eos,
          .stops = s.stop,
          .drafts = s.drafts,
          .holds = s.hold.order,
          .special = s.skip_special_tokens ? SpecialText::hidden : SpecialText::shown,
          .spelling = {{"samples", "n"},
                       {"stop_tokens", "stop_token_ids"},
                       {"max_tokens", s.max_tokens_field},
                       {"top_logprobs", top_logprobs_field},
                       {"prediction", s.drafts.ids_field}}};
}

}  // namespace lockstep
