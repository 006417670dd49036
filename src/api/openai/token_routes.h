// POST /v1/tokenize and /v1/detokenize: text or messages to token ids, and back. Any thread.
//   const std::string json = tokenize_answer(service, body);
#pragma once
#include <string_view>

#include "api/openai/sampling_fields.h"
#include "serving/serving.h"

namespace lockstep {

// The most tokens of one answer, or four times the model's context if that is more.
constexpr std::int64_t kMostTokens = 1 << 16;

// {"model", "prompt" or "messages" and what belongs to them, "add_special_tokens", "return_token_strs"} ->
// {"tokens", "count", "max_model_len", "token_strs"}
// `called`: instead of the body's model (api/openai/requested_model.h).
std::string tokenize_answer(const GenerationService& service, std::string_view body, const std::optional<std::string>& called = {});
// {"model", "tokens", "skip_special_tokens"} -> {"prompt"}
Json detokenize_json(const GenerationService& service, std::string_view body, const std::optional<std::string>& called = {});

}  // namespace lockstep
