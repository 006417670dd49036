// Decodes the body of POST /v1/completions and checks what can be checked without the model: OpenAI's fields, and those that other servers added.
// Known fields that are not supported are refused unless their value asks for nothing. Any thread.
//   const CompletionRequest request = decode_completion(body);
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/openai/sampling_fields.h"

namespace lockstep {

struct CompletionRequest {
  static constexpr std::int64_t kDefaultMaxTokens = 16;  // OpenAI's

  struct Prompt {
    std::string text;
    std::vector<std::int32_t> ids;
    bool is_text = true;
    std::string field;  // "prompt" or "prompt[3]"
  };
  SamplingFields sampling;
  std::vector<Prompt> prompts;
  std::optional<std::int64_t> logprobs;  // 0 to 20: how many of the likeliest tokens to list beside each token
  bool echo = false;
  bool add_special_tokens = true;  // those that the tokenizer puts around a text
};

// A string, an array of token ids, or an array of at most `most` of those. Throws RequestError.
std::vector<CompletionRequest::Prompt> prompts_value(const Json& value, const std::string& field, std::size_t most);

// `defaults`: values of sampling fields that are not given. Throws RequestError with the field at fault.
CompletionRequest decode_completion(std::string_view body, SamplingFields defaults = {});

}  // namespace lockstep
