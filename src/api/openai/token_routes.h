// POST /v1/tokenize and /v1/detokenize: text or messages to token ids, and back. Any thread.
//   const Json answer = tokenize_json(service, body);
#pragma once
#include <string_view>

#include "api/openai/sampling_fields.h"
#include "service/serving.h"

namespace lockstep {

// {"model", "prompt" or "messages" and what belongs to them, "add_special_tokens", "return_token_strs"} ->
// {"tokens", "count", "max_model_len", "token_strs"}
Json tokenize_json(const GenerationService& service, std::string_view body);
// {"model", "tokens", "skip_special_tokens"} -> {"prompt"}
Json detokenize_json(const GenerationService& service, std::string_view body);

}  // namespace lockstep
