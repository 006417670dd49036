// Decodes the body of POST /inference/v1/completions and checks what can be checked without the model: OpenAI's fields of completions
// (api/openai/sampling_fields.h) and Fireworks' own. Known fields that are not supported are refused by name. Any thread.
//   const FireworksCompletion wanted = decode_fireworks_completion(json);
#pragma once
#include "api/openai/sampling_fields.h"

namespace lockstep {

struct FireworksCompletion {
  static constexpr std::int64_t kDefaultMaxTokens = 16;

  SamplingFields sampling;
  std::vector<std::int32_t> prompt;
  std::optional<std::string> prompt_text;  // instead of ids
  std::string prompt_field = "prompt";     // "prompt[0]" of a list of one
  bool add_special_tokens = true;          // around a text
  bool echo = false;
  std::int64_t echo_last = -1;  // how many of the prompt's last tokens the answer begins with, where `echo` is false; -1: none
  bool logprobs = false;
  std::int32_t top_logprobs = 0;
  std::string top_logprobs_field = "logprobs";  // the field that set top_logprobs
  bool routing_matrices = false, kept_tokens = false, raw_output = false, perf_metrics = false;
  bool shorten = true;  // max_tokens beyond the context is as much as the context leaves; false: an error

  bool has_rows() const { return logprobs || routing_matrices || kept_tokens; }
  // How many tokens of a prompt of `length` tokens the answer begins with.
  std::size_t echoed(std::size_t length) const { return echo ? length : echo_last >= 0 ? std::min(length, static_cast<std::size_t>(echo_last)) : 0; }
};

// Throws RequestError with the field at fault.
FireworksCompletion decode_fireworks_completion(const Json& json);

}  // namespace lockstep
