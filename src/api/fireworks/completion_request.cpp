#include "api/fireworks/completion_request.h"

#include <algorithm>

#include "api/openai/hold_fields.h"

namespace lockstep {
namespace {
// What the package's sampler knows a server without files of samples by: it then asks for what comes in the answer itself.
[[noreturn]] void refuse_in_their_words(const std::string& field) {
  throw RequestError(ErrorCode::unsupported, field, fmt::format("Extra inputs are not permitted, field: '{}'", field), 400, "INVALID_ARGUMENT");
}

void read_prompt(FireworksCompletion& out, const Json& value, const std::string& field) {
  const Json* one = &value;
  std::string name = field;
  if (value.is_array() && value.size() == 1 && (value[0].is_array() || value[0].is_string())) {
    one = &value[0];
    name += "[0]";
  } else if (value.is_array() && !value.empty() && (value[0].is_array() || value[0].is_string())) {
    fail_field(field, fmt::format("has {} prompts, allowed is one; several prompts are several requests", value.size()), ErrorCode::unsupported);
  }
  out.prompt_field = name;
  if (one->is_string()) out.prompt_text = one->get<std::string>();
  else out.prompt = json_token_ids(*one, name);
}

// true, false, or how many of the likeliest tokens to list.
void read_logprobs(FireworksCompletion& out, const Json& value, const std::string& field) {
  if (value.is_boolean()) {
    out.logprobs = value.get<bool>();
    return;
  }
  if (!value.is_number())
    fail_field(field, fmt::format("is {}, allowed are true, false, and an integer from 0 to {}", describe_json(value), SamplingParameters::kMaxTopLogprobs));
  out.logprobs = true;
  out.top_logprobs = static_cast<std::int32_t>(json_integer(value, field, 0, SamplingParameters::kMaxTopLogprobs));
}

// OpenAI's form, and Fireworks': a schema beside the type, or alone below json_schema, or as a text.
ResponseFormat read_format(Json value, const std::string& field) {
  require_object(value, field);
  const auto parsed = [&](Json& schema, const char* name) {
    if (schema.is_string()) schema = json_in_text(schema.get<std::string>(), fmt::format("{}.{}", field, name), "a JSON schema");
  };
  if (value.contains("schema") && !value["schema"].is_null()) {
    if (value.contains("json_schema") && !value["json_schema"].is_null()) fail_field(field + ".schema", "is given beside json_schema, allowed is one of them");
    if (const Json type = value.value("type", Json()); type != "json_object" && type != "json_schema")
      fail_field(field + ".schema", fmt::format("is given with type {}, allowed are json_object and json_schema", describe_json(type)));
    Json schema = value["schema"];
    parsed(schema, "schema");
    value.erase("schema");
    value["type"] = "json_schema";
    value["json_schema"] = {{"schema", std::move(schema)}};
  } else if (value.contains("json_schema")) {
    Json& given = value["json_schema"];
    parsed(given, "json_schema");
    if (given.is_object() && !given.contains("schema")) value["json_schema"] = Json{{"schema", Json(given)}};
    value.erase("schema");
  }
  return response_format_value(value, field);
}
}  // namespace

FireworksCompletion decode_fireworks_completion(const Json& json) {
  FireworksCompletion out;
  std::optional<std::int64_t> newer, top;
  std::string beyond = "truncate";
  constexpr std::size_t kMostStops = 64;  // the package's sampler makes texts of token ids
  out.sampling.most_stops = kMostStops;
  JsonFields fields;
  fields.custom("prompt", [&](const Json& value, const std::string& field) { read_prompt(out, value, field); });
  fields.custom("n", [](const Json& value, const std::string& field) {
    if (value != 1) fail_field(field, fmt::format("is {}, allowed is 1; several samples are several requests", describe_json(value)), ErrorCode::unsupported);
  });
  fields.not_null();
  fields.custom("response_format", [&](const Json& value, const std::string& field) { out.sampling.response_format = read_format(value, field); });
  fields.harmless("service_tier");  // before OpenAI's
  add_sampling_fields(fields, &out.sampling);
  fields.integer("max_completion_tokens", &newer, 0, kMostId);
  fields.boolean("add_special_tokens", &out.add_special_tokens);
  fields.boolean("echo", &out.echo);
  fields.integer("echo_last", &out.echo_last, -1, kMostId);
  fields.custom("logprobs", [&](const Json& value, const std::string& field) { read_logprobs(out, value, field); });
  fields.integer("top_logprobs", &top, 0, SamplingParameters::kMaxTopLogprobs);
  fields.boolean("include_routing_matrix", &out.routing_matrices);
  fields.boolean("include_kept_tokens", &out.kept_tokens);
  fields.boolean("raw_output", &out.raw_output);
  fields.boolean("perf_metrics_in_response", &out.perf_metrics);
  fields.choice("context_length_exceeded_behavior", &beyond, {"truncate", "error"});
  for (const char* name : {"top_sampling_logprobs", "top_sampling_format", "sampling_mask"})
    fields.custom(name, [](const Json&, const std::string& field) { refuse_in_their_words(field); });
  fields.custom("routing_matrix_format", [](const Json& value, const std::string& field) {
    if (value != "base64_inline") refuse_in_their_words(field);
  });
  fields.only("images", {Json::array()});
  fields.only("typical_p", {1});
  for (const char* name : {"grammar", "mirostat_lr", "mirostat_target", "prompt_cache_isolation_key", "reasoning_effort", "reasoning_history", "thinking"})
    fields.only(name, {});
  add_speculation_field(fields, &out.sampling.drafts);
  add_hold_fields(fields, &out.sampling);

  fields.read(json);
  SamplingFields& s = out.sampling;
  if (newer) {
    if (s.max_tokens && s.max_tokens != newer)
      fail_field("max_tokens", fmt::format("is {} and max_completion_tokens is {}, allowed is one of them", *s.max_tokens, *newer));
    s.max_tokens = newer;
    s.max_tokens_field = "max_completion_tokens";
  }
  if (!json.contains("prompt") || json["prompt"].is_null()) fail_field("prompt", "is missing");
  if (top && *top > 0 && !out.logprobs) fail_field("top_logprobs", fmt::format("is {} without \"logprobs\": true", *top));
  if (top) {
    out.top_logprobs = static_cast<std::int32_t>(*top);
    out.top_logprobs_field = "top_logprobs";
  }
  out.shorten = beyond == "truncate";
  if (s.model.empty()) fail_field("model", "is missing");
  check_sampling_fields(s, 1);
  check_hold_fields(s, 1);
  return out;
}

}  // namespace lockstep
