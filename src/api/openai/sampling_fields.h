// The fields that /v1/completions and /v1/chat/completions share: how to sample, when to stop, what to return. Checks what can be checked without the
// model. Any thread.
//   SamplingFields sampling; add_sampling_fields(fields, &sampling); fields.read(json); check_sampling_fields(sampling, prompts);
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/json_fields.h"
#include "api/openai/draft_fields.h"
#include "api/sampling_values.h"
#include "serving/completion.h"

namespace lockstep {

// The format that the answer's text must have.
struct ResponseFormat {
  enum class Kind { text, json_object, json_schema };
  Kind kind = Kind::text;
  Json schema;        // of json_schema
  std::string field;  // the field that held it: "response_format.json_schema.schema"
};

// Where the answer is held on the way (api/openai/hold_fields.h), and how long at most.
struct HoldFields {
  HoldOrder order;
  double seconds = 60;
};

struct SamplingFields {
  static constexpr std::int64_t kMostChoices = 256;  // prompts x n

  std::size_t most_stops = 16;  // that are allowed: set before the fields are added
  std::string model;
  std::int64_t n = 1, top_k = 0, min_tokens = 0;
  float temperature = 1, top_p = 1, min_p = 0;
  float presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  std::vector<LogitBias> logit_bias;    // one a token
  std::optional<std::int64_t> best_of;  // n or 1, and nothing else
  std::optional<std::int64_t> max_tokens;
  std::string max_tokens_field = "max_tokens";  // the field that held it
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;  // none empty
  std::vector<std::int32_t> stop_token_ids;
  ResponseFormat response_format;
  bool ignore_eos = false, skip_special_tokens = true;
  std::optional<bool> return_token_ids;
  bool stream = false, include_usage = false;
  std::string service_tier = "auto";
  DraftOrder drafts;
  HoldFields hold;
  std::int64_t attempt = 0;
  std::optional<bool> keep_forward;  // for training (api/openai/keep_field.h)
};

// What a request that says nothing is sampled with: the model's generation_config.json, or its own distribution.
SamplingFields sampling_defaults(const GenerationDefaults& defaults);
ResponseFormat response_format_value(const Json& value, const std::string& field);
void add_sampling_fields(JsonFields& fields, SamplingFields* s);
// Checks that concern several fields together. Throws RequestError.
void check_sampling_fields(const SamplingFields& s, std::size_t prompts);
// The order that the fields describe. The caller sets its prompts, its constraint, and the number of tokens if the fields have none. Without a
// seed one is drawn.
CompletionOrder order_of(const SamplingFields& s, std::int64_t top_logprobs, const std::string& top_logprobs_field);

}  // namespace lockstep
