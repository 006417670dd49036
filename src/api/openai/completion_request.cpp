#include "api/openai/completion_request.h"

#include <limits>

#include "api/json_fields.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostStops = 16;
constexpr std::int32_t kMostId = std::numeric_limits<std::int32_t>::max();

std::vector<std::int32_t> token_ids(const Json& array, const std::string& field) {
  std::vector<std::int32_t> ids;
  ids.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i)
    ids.push_back(static_cast<std::int32_t>(json_integer(array[i], fmt::format("{}[{}]", field, i), 0, kMostId)));
  return ids;
}

CompletionRequest::Prompt one_prompt(const Json& value, const std::string& field) {
  if (value.is_string()) return {value.get<std::string>(), {}, true, field};
  if (!value.is_array() || value.empty())
    fail_field(field, fmt::format("is {}, allowed is a string or an array of token ids", describe_json(value)));
  return {{}, token_ids(value, field), false, field};
}

// A string, an array of token ids, or an array of those.
std::vector<CompletionRequest::Prompt> prompts(const Json& value, const std::string& field) {
  if (!value.is_array() || value.empty() || value[0].is_number()) {
    if (!value.is_string() && !(value.is_array() && !value.empty()))
      fail_field(field, fmt::format("is {}, allowed is a string, an array of token ids, or an array of those", describe_json(value)));
    return {one_prompt(value, field)};
  }
  if (value.size() > static_cast<std::size_t>(CompletionRequest::kMostChoices))
    fail_field(field, fmt::format("has {} prompts, allowed are at most {}", value.size(), CompletionRequest::kMostChoices));
  std::vector<CompletionRequest::Prompt> result;
  for (std::size_t i = 0; i < value.size(); ++i) result.push_back(one_prompt(value[i], fmt::format("{}[{}]", field, i)));
  return result;
}

std::vector<std::string> stop_strings(const Json& value, const std::string& field) {
  std::vector<std::string> stops;
  if (value.is_string()) {
    stops.push_back(value.get<std::string>());
  } else {
    if (!value.is_array() || value.size() > kMostStops)
      fail_field(field, fmt::format("is {}, allowed is a string or an array of at most {}", describe_json(value), kMostStops));
    for (std::size_t i = 0; i < value.size(); ++i) stops.push_back(json_text(value[i], fmt::format("{}[{}]", field, i)));
  }
  for (const std::string& stop : stops)
    if (stop.empty() || stop.size() > 1000) fail_field(field, fmt::format("has a string of {} bytes, allowed is 1 to 1000", stop.size()));
  return stops;
}

std::uint64_t seed_value(const Json& value, const std::string& field) {
  if (!value.is_number_integer()) fail_field(field, fmt::format("is {}, allowed is an integer of 64 bits", describe_json(value)));
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : static_cast<std::uint64_t>(value.get<std::int64_t>());
}
}  // namespace

CompletionRequest decode_completion(std::string_view body) {
  CompletionRequest r;
  std::optional<std::int64_t> logprobs;
  JsonFields options;
  options.boolean("include_usage", &r.include_usage);

  JsonFields fields;
  fields.text("model", &r.model);
  fields.custom("prompt", [&](const Json& value, const std::string& field) { r.prompts = prompts(value, field); });
  fields.integer("max_tokens", &r.max_tokens, 0, kMostId);
  fields.number("temperature", &r.temperature, 0, 100);
  fields.number("top_p", &r.top_p, 0, 1);
  fields.integer("top_k", &r.top_k, -1, kMostId);  // -1 and 0: all
  fields.integer("n", &r.n, 1, CompletionRequest::kMostChoices);
  fields.custom("seed", [&](const Json& value, const std::string& field) { r.seed = seed_value(value, field); });
  fields.custom("stop", [&](const Json& value, const std::string& field) { r.stop = stop_strings(value, field); });
  fields.custom("stop_token_ids", [&](const Json& value, const std::string& field) {
    if (!value.is_array() || value.size() > 64)
      fail_field(field, fmt::format("is {}, allowed is an array of at most 64 token ids", describe_json(value)));
    r.stop_token_ids = token_ids(value, field);
  });
  fields.integer("logprobs", &logprobs, 0, 5);
  fields.boolean("stream", &r.stream);
  fields.custom("stream_options", [&](const Json& value, const std::string& field) {
    if (!value.is_object()) fail_field(field, fmt::format("is {}, allowed is an object", describe_json(value)));
    options.read(value);
  });
  fields.ignored("user");
  fields.only("echo", {false});
  fields.only("best_of", {1});
  fields.only("suffix", {""});
  fields.only("presence_penalty", {0});
  fields.only("frequency_penalty", {0});
  fields.only("logit_bias", {Json::object()});

  fields.read(parse_object(body));
  if (r.model.empty()) fail_field("model", "is missing");
  if (r.prompts.empty()) fail_field("prompt", "is missing");
  if (logprobs.value_or(0) > 1)
    fail_field("logprobs", fmt::format("is {}; log-probabilities of the sampled token alone are offered, so 0 or 1", *logprobs), ErrorCode::unsupported);
  r.logprobs = logprobs.has_value();
  r.top_logprobs = logprobs.value_or(0) == 1;
  if (r.top_k < 0) r.top_k = 0;
  const std::int64_t choices = static_cast<std::int64_t>(r.prompts.size()) * r.n;
  if (choices > CompletionRequest::kMostChoices)
    fail_field("n", fmt::format("is {} for {} prompts, allowed are at most {} choices a request", r.n, r.prompts.size(), CompletionRequest::kMostChoices));
  if (r.include_usage && !r.stream) fail_field("stream_options", "is given without \"stream\": true");
  return r;
}

}  // namespace lockstep
