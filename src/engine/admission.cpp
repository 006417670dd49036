#include "engine/admission.h"

#include <unordered_set>

#include "base/error.h"
#include "model/low_bit_weights.h"

namespace lockstep {

void check_tokens(const char* field, const std::vector<std::int32_t>& tokens, std::int64_t vocabulary) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      fail(ErrorCode::invalid_argument, "{}[{}] is {}, allowed are token ids from 0 to {}", field, i, tokens[i], vocabulary - 1);
}

namespace {
void check_biases(const std::vector<LogitBias>& biases, std::int64_t vocabulary) {
  if (biases.size() > SamplingParameters::kMaxLogitBias)
    fail(ErrorCode::invalid_argument, "logit_bias has {} entries, allowed are at most {}", biases.size(), SamplingParameters::kMaxLogitBias);
  std::unordered_set<std::int32_t> tokens;
  for (const LogitBias& b : biases) {
    if (b.token < 0 || b.token >= vocabulary)
      fail(ErrorCode::invalid_argument, "logit_bias names token {}, allowed are token ids from 0 to {}", b.token, vocabulary - 1);
    if (!(b.bias >= -100 && b.bias <= 100)) fail(ErrorCode::invalid_argument, "logit_bias of token {} is {}, allowed is -100 to 100", b.token, b.bias);
    if (!tokens.insert(b.token).second) fail(ErrorCode::invalid_argument, "logit_bias names token {} twice, allowed is one entry a token", b.token);
  }
}
// Tokens to score at prompt positions.
void check_targets(const Request& request, std::int64_t vocabulary) {
  const std::int64_t k = request.prompt_targets_per_row, rows = static_cast<std::int64_t>(request.prompt.size()) - 1;
  if (k < 0 || k > Request::kMaxPromptTargets)
    fail(ErrorCode::invalid_argument, "prompt_targets has {} tokens a position, allowed are 0 to {}", k, Request::kMaxPromptTargets);
  if (static_cast<std::int64_t>(request.prompt_targets.size()) != rows * k)
    fail(ErrorCode::invalid_argument, "prompt_targets has {} tokens, allowed are {} ({} positions after the first, {} each)", request.prompt_targets.size(),
         rows * k, rows, k);
  if ((k > 0 || request.prompt_draws > 0) && !request.prompt_logprobs)
    fail(ErrorCode::invalid_argument, "prompt_targets and prompt_draws are asked for without prompt_logprobs, allowed is with them");
  for (std::size_t i = 0; i < request.prompt_targets.size(); ++i)
    if (request.prompt_targets[i] < -1 || request.prompt_targets[i] >= vocabulary)
      fail(ErrorCode::invalid_argument, "prompt_targets[{}] is {}, allowed are token ids from 0 to {}, and -1 for none", i, request.prompt_targets[i],
           vocabulary - 1);
}
}  // namespace

void check_request(const Request& request, const RequestLimits& limits) {
  const SamplingParameters& s = request.sampling;
  if (request.prompt.empty()) fail(ErrorCode::invalid_argument, "prompt is empty, allowed are 1 to {} tokens", limits.max_positions);
  check_tokens("prompt", request.prompt, limits.vocabulary);
  // Comparisons that a NaN fails.
  if (!(s.temperature == 0 || (s.temperature >= SamplingParameters::kLeastTemperature && s.temperature <= 100)))
    fail(ErrorCode::invalid_argument, "temperature is {}, allowed is 0, or {} to 100", s.temperature, SamplingParameters::kLeastTemperature);
  if (!(s.top_p >= 0 && s.top_p <= 1)) fail(ErrorCode::invalid_argument, "top_p is {}, allowed is 0 to 1", s.top_p);
  if (s.top_k < 0) fail(ErrorCode::invalid_argument, "top_k is {}, allowed is 0 (all) or more", s.top_k);
  const auto check_number = [](const char* name, float value, float low, float high) {
    if (!(value >= low && value <= high)) fail(ErrorCode::invalid_argument, "{} is {}, allowed is {} to {}", name, value, low, high);
  };
  check_number("min_p", s.min_p, 0, 1);
  check_number("presence_penalty", s.presence_penalty, -2, 2);
  check_number("frequency_penalty", s.frequency_penalty, -2, 2);
  if (!(s.repetition_penalty > 0 && s.repetition_penalty <= 10))
    fail(ErrorCode::invalid_argument, "repetition_penalty is {}, allowed is above 0 to 10", s.repetition_penalty);
  if (s.top_logprobs < 0 || s.top_logprobs > SamplingParameters::kMaxTopLogprobs)
    fail(ErrorCode::invalid_argument, "top_logprobs is {}, allowed is 0 to {}", s.top_logprobs, SamplingParameters::kMaxTopLogprobs);
  check_biases(s.logit_bias, limits.vocabulary);
  if (s.max_tokens < 0) fail(ErrorCode::invalid_argument, "max_tokens is {}, allowed is 0 or more", s.max_tokens);
  if (s.sample_index < 0) fail(ErrorCode::invalid_argument, "sample_index is {}, allowed is 0 or more", s.sample_index);
  if (s.attempt < 0 || s.attempt > SamplingParameters::kMaxAttempt)
    fail(ErrorCode::invalid_argument, "attempt is {}, allowed is 0 to {}", s.attempt, SamplingParameters::kMaxAttempt);
  if (request.said < 0 || request.said >= static_cast<std::int64_t>(request.prompt.size()))
    fail(ErrorCode::invalid_argument, "said is {}, allowed is 0 to {} of a prompt of {} tokens", request.said, request.prompt.size() - 1,
         request.prompt.size());
  check_tokens("stop_tokens", s.stop_tokens, limits.vocabulary);
  check_tokens("given", request.given, limits.vocabulary);
  if (std::ssize(request.given) > s.max_tokens)
    fail(ErrorCode::invalid_argument, "given has {} tokens, allowed are at most max_tokens, {}", request.given.size(), s.max_tokens);
  if (!request.given.empty() && (s.temperature == 0 || s.constraint))
    fail(ErrorCode::invalid_argument, "given has {} tokens {}, allowed is a temperature above 0 and no constraint", request.given.size(),
         s.constraint ? "with a constraint" : "at temperature 0");
  if (request.prompt_draws < 0 || request.prompt_draws > Request::kMaxPromptDraws)
    fail(ErrorCode::invalid_argument, "prompt_draws is {}, allowed is 0 to {}", request.prompt_draws, Request::kMaxPromptDraws);
  check_targets(request, limits.vocabulary);
  if (request.pooling != Pooling::none && (s.max_tokens > 0 || request.prompt_logprobs))
    fail(ErrorCode::invalid_argument, "pooling is asked for with max_tokens {}{}, allowed is max_tokens 0 and no log-probabilities", s.max_tokens,
         request.prompt_logprobs ? " and prompt_logprobs" : "");
  if (const bool changed = s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0 || !s.logit_bias.empty();
      request.kept_tokens && changed)
    fail(ErrorCode::invalid_argument,
         "kept_tokens is asked for with repetition_penalty {}, presence_penalty {}, frequency_penalty {} and {} entries of logit_bias; allowed is 1, 0, 0 and "
         "none, since training knows no penalties and biases",
         s.repetition_penalty, s.presence_penalty, s.frequency_penalty, s.logit_bias.size());
  if (request.drafts) {
    check_draft_tokens(request.drafts->tokens, "draft tokens");
    check_acceptance(*request.drafts, "the acceptance of drafts");
  }
  if (request.prediction.size() > Request::kMaxPrediction)
    fail(ErrorCode::invalid_argument, "prediction has {} tokens, allowed are at most {}", request.prediction.size(), Request::kMaxPrediction);
  check_tokens("prediction", request.prediction, limits.vocabulary);
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  const auto check_length = [&](std::int64_t most, const char* what) {
    if (prompt > most) fail(ErrorCode::invalid_argument, "prompt has {} tokens, allowed are at most {} ({})", prompt, most, what);
    if (prompt + s.max_tokens > most)
      fail(ErrorCode::invalid_argument, "max_tokens is {}, allowed is at most {} after a prompt of {} tokens ({} {})", s.max_tokens, most - prompt, prompt,
           what, most);
  };
  check_length(limits.max_positions, "the longest context");
  check_length(limits.cache_positions, "positions in the cache");
}

void check_weights(const WeightSet& weights, const Model& model, const Profile& profile) {
  const std::vector<Parameter>& parameters = model.manifest().parameters();
  if (weights.parameters.size() != parameters.size())
    fail(ErrorCode::invalid_argument, "weights has {} parameters, allowed are the {} of the model", weights.parameters.size(), parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    const View& copy = weights.parameters[i].view();
    const DType dtype = compute_dtype(p, profile);
    const std::int64_t size = dtype == DType::u8 ? p.count * item_bytes(p, profile) : p.size();
    if (copy.dtype != dtype || copy.size() != size)
      fail(ErrorCode::invalid_argument, "weights has {} elements of {} in '{}', allowed are {} of {} (profile '{}')", copy.size(), dtype_name(copy.dtype),
           p.name, size, dtype_name(dtype), profile.name);
  }
}

void check_options(const EngineOptions& o) {
  const auto check = [](const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) fail(ErrorCode::invalid_argument, "{} is {}, allowed is {} to {}", name, value, low, high);
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  constexpr double kLongestStep = 60;
  check("page_size", o.page_size, 1, 65536);
  check("cache_pages", o.cache_pages, 0, kMost);
  check("cache_bytes", o.cache_bytes, 0, std::int64_t{1} << 50);
  check("max_batch_rows", o.max_batch_rows, 1, kMost);
  check("max_sequences", o.max_sequences, 1, kMost);
  check("prefill_chunk", o.prefill_chunk, 1, kMost);
  check_draft_tokens(o.drafts.tokens, "draft tokens");
  if (!(o.live_token_seconds >= 0 && o.live_token_seconds <= kLongestStep))
    fail(ErrorCode::invalid_argument, "live_token_seconds is {}, allowed is 0 (no bound) to {}", o.live_token_seconds, kLongestStep);
}

}  // namespace lockstep
