// How a token is drawn from logits, and when a request ends: temperature, filters, penalties, seed, stop tokens. Plain values.
//   SamplingParameters sampling{.temperature = 0.8f, .top_p = 0.95f, .seed = 42, .max_tokens = 20, .stop_tokens = {2}};
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/constraint.h"

namespace lockstep {

struct LogitBias {
  std::int32_t token = 0;
  float bias = 0;
};

struct SamplingParameters {
  float temperature = 1;   // 0: arg-max; kLeastTemperature to 100
  float top_p = 1;         // 0 to 1; 1: all
  std::int32_t top_k = 0;  // 0: all
  float min_p = 0;         // 0 to 1; keeps tokens at least this share as likely as the likeliest; 0: all
  // Adjustments of the logits, before temperature and filters (docs/numerics.md section 6).
  float repetition_penalty = 1;       // above 0 to 10; of tokens in the prompt or generated
  float presence_penalty = 0;         // -2 to 2; of tokens generated
  float frequency_penalty = 0;        // -2 to 2; times how often each was generated
  std::vector<LogitBias> logit_bias;  // at most kMaxLogitBias, biases -100 to 100, one a token
  std::uint64_t seed = 0;
  std::int32_t max_tokens = 16;  // 0: the prompt is computed (for its log-probabilities) and nothing sampled
  std::vector<std::int32_t> stop_tokens;
  std::int32_t sample_index = 0;                // which of several samples of one seed: other noise
  std::int32_t attempt = 0;                     // which try of a text that was rolled back, 0 to kMaxAttempt: other noise
  std::int32_t top_logprobs = 0;                // 0 to kMaxTopLogprobs: likeliest tokens told with each (of the prompt's too, when
                                                // its log-probabilities are asked for)
  std::shared_ptr<TokenConstraint> constraint;  // null: every token is allowed; of this request alone

  static constexpr std::int32_t kMaxTopLogprobs = 20;
  static constexpr std::int32_t kMaxAttempt = (1 << 20) - 1;
  static constexpr std::size_t kMaxLogitBias = 1024;
  static constexpr float kLeastTemperature = 1e-6f;  // below, logits divided by it may be no numbers any more
};

}  // namespace lockstep
