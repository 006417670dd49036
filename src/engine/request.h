// What the engine is asked for and what it answers: token ids in, token ids and log-probabilities out.
// Knows no text, no HTTP, no training. Plain values.
//   Request request{.prompt = {1, 5, 7}, .sampling = {.temperature = 0.8f, .seed = 42, .max_tokens = 20, .stop_tokens =
//   {2}}};
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct SamplingParameters {
  float temperature = 1;   // 0 to 100; 0: arg-max
  float top_p = 1;         // 0 to 1; 1: all
  std::int32_t top_k = 0;  // 0: all
  std::uint64_t seed = 0;
  std::int32_t max_tokens = 16;  // 0: the prompt is computed (for its log-probabilities) and nothing sampled
  std::vector<std::int32_t> stop_tokens;
  std::int32_t sample_index = 0;  // which of several samples of one seed: other noise
};

struct Request {
  std::vector<std::int32_t> prompt;
  SamplingParameters sampling;
  bool prompt_logprobs = false;  // log-probabilities of prompt tokens 1..n-1; such a prompt never uses cached pages
};

enum class FinishReason { none, stop, length, cancelled, error };
std::string_view finish_reason_name(FinishReason reason);

struct GeneratedToken {
  std::int32_t id = -1;
  float raw_logprob = 0;              // log-softmax of the logits
  float sampling_logprob = 0;         // after temperature and filters; temperature 0: the raw one
  std::uint64_t weights_version = 0;  // of the forward that chose it
};

struct Generation {
  std::uint64_t id = 0;
  std::vector<GeneratedToken> tokens;  // with the stop token, when one ended it
  FinishReason finish = FinishReason::none;
  std::string error;                   // of FinishReason::error
  std::vector<float> prompt_logprobs;  // n - 1 values when asked for: [i] of token i + 1 given tokens 0..i
};

}  // namespace lockstep
