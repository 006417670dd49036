// What the engine is asked for: a prompt of token ids, how to sample, and what to report beside the tokens. The answer is a Generation
// (engine/generation.h). Knows no text, no HTTP, no training. Plain values.
//   Request request{.prompt = {1, 5, 7}, .sampling = {.temperature = 0.8f, .seed = 42, .max_tokens = 20, .stop_tokens =
//   {2}}};
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/drafts/draft_options.h"
#include "engine/sampling_parameters.h"

namespace lockstep {

struct WeightSet;
struct AdapterWeights;
class ShareAccount;

// Which hidden state of the prompt, after the final norm, is returned: none, the last token's, or the mean over its tokens.
enum class Pooling { none, last, mean };

struct Request {
  std::vector<std::int32_t> prompt;
  SamplingParameters sampling;
  // So many of the prompt's last tokens are an answer's that goes on: to penalties and to the constraint, which accepts them first, they are generated.
  std::int32_t said = 0;
  // Log-probabilities of prompt tokens 1..n-1. Such a prompt uses cached pages only where the rows of their positions were kept (engine/kept_scores.h).
  bool prompt_logprobs = false;
  // Other weights on the engine's runtime for all of the request's tokens, as a snapshot or those of another trainer. Null: the engine's.
  std::shared_ptr<const WeightSet> weights = nullptr;
  // An adapter over those weights (model/adapter.h). Requests with different adapters share forwards. Null: none.
  std::shared_ptr<const AdapterWeights> adapter = nullptr;
  // With prompt_logprobs only, for every prompt position after the first. prompt_targets [n - 1, prompt_targets_per_row]: tokens to score at position
  // i + 1 beside the prompt's own, -1: none. prompt_draws: how many tokens to draw there, with temperature but no filter.
  std::vector<std::int32_t> prompt_targets = {};
  std::int32_t prompt_targets_per_row = 0;
  std::int32_t prompt_draws = 0;
  // Returns which experts computed each token (GeneratedToken::experts), with prompt_logprobs also for the prompt. For models with routed experts.
  bool experts = false;

  // Returns the set of tokens that each token was drawn from, where top-k, top-p, min-p or the constraint removed some (GeneratedToken::kept). Refused
  // with penalties or biases, since a trainer cannot compute that distribution.
  bool kept_tokens = false;

  // The first tokens of the answer, each taken in place of one that is drawn, with the log-probabilities and the kept set that it would have if drawn: a
  // text is said again as it was sampled. Refused at temperature 0 and with a constraint.
  std::vector<std::int32_t> given = {};

  // Stores the outputs of its layers for a trainer of the same weights and owner (EngineOptions::kept_forwards, prefix_owner). No bit depends on it.
  bool keep_forward = false;

  // Only with max_tokens 0 and without prompt_logprobs. A mean does not use cached pages, since the hidden states of their positions are not stored.
  Pooling pooling = Pooling::none;

  // Cached pages are shared among requests of one owner only, so that a count of cached tokens reveals nothing about other owners' prompts; kept forwards
  // are the owner's alone, too.
  std::uint64_t prefix_owner = 0;
  // The account whose share of batch places, pages and rows it uses (engine/fair_order.h). Null: one account for all such requests.
  std::shared_ptr<ShareAccount> account = nullptr;
  bool is_stream = true;  // counts towards its key's limit of streams (serving/serving.h); false for a part of a larger operation

  // How it is speculated; none: the engine's own choice. No bit depends on it except under rejection sampling.
  std::optional<DraftOptions> drafts = {};
  std::vector<std::int32_t> prediction = {};  // the expected text, for DraftKind::prediction
  DraftScript draft_script = {};              // for tests

  static constexpr std::int32_t kMaxPromptTargets = 1024, kMaxPromptDraws = 64;
  static constexpr std::size_t kMaxPrediction = std::size_t{1} << 14;
};

}  // namespace lockstep
