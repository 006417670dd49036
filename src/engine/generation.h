// What the engine answers to a request (engine/request.h): tokens with their log-probabilities, why it ended, and what was asked for beside them.
// Plain values.
//   engine.submit(request, {}, [](Generation&& done) { return done.finish == FinishReason::stop; });
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/kept_tokens.h"
#include "engine/drafts/draft_options.h"

namespace lockstep {

enum class FinishReason { none, stop, length, cancelled, error };
std::string_view finish_reason_name(FinishReason reason);

struct TokenLogprob {
  std::int32_t id = -1;
  float logprob = 0;
};

// Under a constraint all log-probabilities are over the allowed tokens.
struct GeneratedToken {
  std::int32_t id = -1;
  float raw_logprob = 0;              // log-softmax of the logits, before penalties and biases
  float sampling_logprob = 0;         // of the distribution it was drawn from; temperature 0: the raw one
  std::uint64_t weights_version = 0;  // of the forward that chose it; under an adapter, the adapter's
  std::vector<TokenLogprob> top;      // top_logprobs of them (fewer when fewer are allowed): raw, descending, ties to the
                                      // lower id; the token itself need not be among them
  // When asked for: the experts of all sparse layers (model/expert_shape.h) for the row it was sampled from, which is the row of the token before it.
  std::vector<std::uint16_t> experts = {};
  KeptTokens kept = {};  // when asked for (Request::kept_tokens)
  bool mixed = false;    // entries of its prefix are of several weights versions: exactness is not promised
  bool put_in = false;   // put by a program into an answer that was held (serving/hold.h): not sampled and never trained; only `id` is set
};

// When the request was submitted, when the forward with its first rows began, and when its first token was known; the epoch: that did not happen.
// Measured, so they depend on what else ran.
struct GenerationTimes {
  using Point = std::chrono::steady_clock::time_point;
  Point taken{}, began{}, first_token{};
};

struct Generation {
  std::uint64_t id = 0;
  std::vector<GeneratedToken> tokens;  // with the stop token, when one ended it
  FinishReason finish = FinishReason::none;
  std::string error;                                           // of FinishReason::error
  std::int64_t cached_tokens = 0;                              // prompt tokens found in the prefix cache: depends on what ran before
  std::vector<float> prompt_logprobs;                          // n - 1 values when asked for: [i] of token i + 1 given tokens 0..i
  std::vector<std::vector<TokenLogprob>> prompt_top_logprobs;  // beside them, when top_logprobs > 0
  std::vector<float> prompt_target_logprobs;                   // of Request::prompt_targets, in their places; +0 where none is
  std::vector<std::vector<std::uint16_t>> prompt_experts;      // beside prompt_logprobs, when experts are asked for: [i] of the row of token i
  std::vector<TokenLogprob> prompt_draws;                      // [n - 1, Request::prompt_draws], of the distribution drawn from
  DraftCounters drafts;                                        // of its speculation: depends on what else ran
  std::vector<float> pooled;                                   // [hidden], of Request::pooling; not normalised
  GenerationTimes times;
};

}  // namespace lockstep
