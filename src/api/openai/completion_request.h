// The body of POST /v1/completions, decoded and checked as far as it can be without the model. OpenAI's fields, and top_k and
// stop_token_ids, which others know too. Fields that are known and not offered are refused unless they ask for nothing.
// Any thread.
//   const CompletionRequest request = decode_completion(body);
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct CompletionRequest {
  static constexpr std::int64_t kMostChoices = 256;  // prompts x n

  struct Prompt {
    std::string text;
    std::vector<std::int32_t> ids;
    bool is_text = true;
    std::string field;  // "prompt" or "prompt[3]"
  };
  std::string model;
  std::vector<Prompt> prompts;
  std::int64_t max_tokens = 16, n = 1, top_k = 0;
  float temperature = 1, top_p = 1;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;            // at most 16, none empty
  std::vector<std::int32_t> stop_token_ids;
  bool logprobs = false;                    // token_logprobs and sampling_logprobs
  bool top_logprobs = false;                // "logprobs": 1; the sampled token's alone
  bool stream = false, include_usage = false;
};

// Throws RequestError with the field at fault.
CompletionRequest decode_completion(std::string_view body);

}  // namespace lockstep
