// A request to sample, as training clients send it, and its result. Plain values.
//   SamplingRequest wanted; wanted.prompt = {1, 5, 7}; wanted.num_samples = 4;
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/generation.h"
#include "engine/request.h"

namespace lockstep {

struct SamplingRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t num_samples = 1;
  std::optional<std::int64_t> max_tokens;  // none: as many as the context holds
  std::optional<std::uint64_t> seed;       // none: drawn
  float temperature = 1, top_p = 1;
  std::int32_t top_k = 0;  // 0: all
  // Empty optional: the model's end tokens stop it; else only these.
  std::optional<std::vector<std::string>> stop_texts;
  std::optional<std::vector<std::int32_t>> stop_tokens;
  bool prompt_logprobs = false;
  std::optional<std::int64_t> prompt_logprobs_last_n;
  std::int64_t topk_prompt_logprobs = 0, topk_sample_logprobs = 0;
  // For every prompt position after the first: tokens to score, [n - 1, prompt_targets_per_row], -1: none; how many tokens to draw.
  std::vector<std::int32_t> prompt_targets;
  std::int64_t prompt_targets_per_row = 0, prompt_draws = 0;
  std::optional<bool> keep_forward;  // whether what it computes is kept for training; none: as its key says, else it is (serving/kept_requests.h)
  bool scores_prompt() const { return prompt_logprobs || topk_prompt_logprobs > 0 || prompt_targets_per_row > 0 || prompt_draws > 0; }

  static constexpr std::int64_t kMaxPromptTargets = Request::kMaxPromptTargets;  // a row
};

struct SampledSequence {
  std::vector<std::int32_t> tokens;  // with those of the stop string
  std::vector<float> logprobs;       // of the distribution each was drawn from
  std::vector<std::vector<TokenLogprob>> top;
  bool stopped = false;  // false: max_tokens was reached
};

struct SamplingResult {
  std::vector<SampledSequence> sequences;
  std::vector<float> prompt_logprobs;  // one a prompt token, the first NaN; empty: not asked for
  std::vector<std::vector<TokenLogprob>> prompt_top;
  std::vector<float> prompt_target_logprobs;  // in the places of prompt_targets; 0 where none is
  std::vector<TokenLogprob> prompt_draws;     // [n - 1, prompt_draws]
  std::int64_t cached_tokens = 0;
};

}  // namespace lockstep
