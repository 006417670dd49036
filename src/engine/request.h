// What the engine is asked for and what it answers: token ids in, token ids and log-probabilities out.
// Knows no text, no HTTP, no training. Plain values.
//   Request request{.prompt = {1, 5, 7}, .sampling = {.temperature = 0.8f, .seed = 42, .max_tokens = 20, .stop_tokens =
//   {2}}};
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/kept_tokens.h"
#include "engine/constraint.h"
#include "engine/drafts/draft_options.h"

namespace lockstep {

struct WeightSet;
struct AdapterWeights;
class ShareAccount;

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

// What is told of a prompt's hidden states behind the final norm: nothing, that of its last token, or their mean over its tokens.
enum class Pooling { none, last, mean };

struct Request {
  std::vector<std::int32_t> prompt;
  SamplingParameters sampling;
  // So many of the prompt's last tokens are an answer's that goes on: to penalties and to the constraint, which accepts them first, they are generated.
  std::int32_t said = 0;
  bool prompt_logprobs = false;  // log-probabilities of prompt tokens 1..n-1; such a prompt never uses cached pages
  // Weights of its own, on the engine's runtime, for all its tokens: a snapshot, another trainer's. Null: the engine's.
  std::shared_ptr<const WeightSet> weights = nullptr;
  // An adapter over those weights, for all its tokens (model/adapter.h). Requests under several adapters share forwards. Null: none.
  std::shared_ptr<const AdapterWeights> adapter = nullptr;
  // Asked of every prompt position after the first, with prompt_logprobs alone. Tokens to score there beside the prompt's own: row i of
  // [n - 1, prompt_targets_per_row] is of position i + 1; -1: none. And how many to draw there, at the temperature alone.
  std::vector<std::int32_t> prompt_targets = {};
  std::int32_t prompt_targets_per_row = 0;
  std::int32_t prompt_draws = 0;
  // The experts that chose each token are told (GeneratedToken::experts); with prompt_logprobs the prompt's too. Of a model that has some.
  bool experts = false;

  // The tokens that each token was drawn from are told, where top-k, top-p, min-p or the constraint cut some (GeneratedToken::kept). Not of logits that
  // penalties or biases changed: a trainer knows no such distribution.
  bool kept_tokens = false;

  // What leaves the layers at each of its rows is kept for a trainer of the same weights (EngineOptions::kept_forwards). No bit depends on it.
  bool keep_forward = false;

  // With max_tokens 0 and without prompt_logprobs alone. For a mean, cached pages are not used: their positions have no hidden states.
  Pooling pooling = Pooling::none;

  // Cached pages are shared by requests of one owner alone: how many tokens of a prompt were found tells nobody what others asked.
  std::uint64_t prefix_owner = 0;
  // Whose places, pages and rows it takes where there are too few for all (engine/fair_order.h). Null: all such are one's.
  std::shared_ptr<ShareAccount> account = nullptr;
  bool is_stream = true;  // counts as one of its key's streams (serving/serving.h); not where it is a part of another operation

  // How it is guessed ahead; none: as the engine does by itself. No bit depends on it, but under rejection sampling.
  std::optional<DraftOptions> drafts = {};
  std::vector<std::int32_t> prediction = {};  // what it may say, for DraftKind::prediction
  DraftScript draft_script = {};              // for tests

  static constexpr std::int32_t kMaxPromptTargets = 1024, kMaxPromptDraws = 64;
  static constexpr std::size_t kMaxPrediction = std::size_t{1} << 14;
};

enum class FinishReason { none, stop, length, cancelled, error };
std::string_view finish_reason_name(FinishReason reason);

struct TokenLogprob {
  std::int32_t id = -1;
  float logprob = 0;
};

// Where a constraint stands, all log-probabilities are over the tokens that it allowed.
struct GeneratedToken {
  std::int32_t id = -1;
  float raw_logprob = 0;              // log-softmax of the logits, before penalties and biases
  float sampling_logprob = 0;         // of the distribution it was drawn from; temperature 0: the raw one
  std::uint64_t weights_version = 0;  // of the forward that chose it; under an adapter, the adapter's
  std::vector<TokenLogprob> top;      // top_logprobs of them (fewer when fewer are allowed): raw, descending, ties to the
                                      // lower id; the token itself need not be among them
  // When asked for: where the row that it was sampled from went, the token before it at its position. Experts of all sparse layers
  // (model/expert_shape.h).
  std::vector<std::uint16_t> experts = {};
  KeptTokens kept = {};  // when asked for (Request::kept_tokens)
  bool mixed = false;    // entries of its prefix are of several weights versions: exactness is not promised
  bool put_in = false;   // by a program, into an answer that was held (serving/hold.h): nobody drew it, and nobody trains it; the id is all there is
};

// When a request was taken, the forward with the first of its rows began, and its first token was known; what did not come to pass is the
// epoch. Measured: they depend on what else ran.
struct GenerationTimes {
  using Point = std::chrono::steady_clock::time_point;
  Point taken{}, began{}, first_token{};
};

struct Generation {
  std::uint64_t id = 0;
  std::vector<GeneratedToken> tokens;  // with the stop token, when one ended it
  FinishReason finish = FinishReason::none;
  std::string error;                                           // of FinishReason::error
  std::int64_t cached_tokens = 0;                              // of the prompt, found in the prefix cache: depends on what ran before
  std::vector<float> prompt_logprobs;                          // n - 1 values when asked for: [i] of token i + 1 given tokens 0..i
  std::vector<std::vector<TokenLogprob>> prompt_top_logprobs;  // beside them, when top_logprobs > 0
  std::vector<float> prompt_target_logprobs;                   // of Request::prompt_targets, in their places; +0 where none is
  std::vector<std::vector<std::uint16_t>> prompt_experts;      // beside prompt_logprobs, when experts are asked for: [i] of the row of token i
  std::vector<TokenLogprob> prompt_draws;                      // [n - 1, Request::prompt_draws], of the distribution drawn from
  DraftCounters drafts;                                        // of its guesses: depends on what else ran
  std::vector<float> pooled;                                   // [hidden], of Request::pooling; not normalised
  GenerationTimes times;
};

}  // namespace lockstep
