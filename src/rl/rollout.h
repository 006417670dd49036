// Samples completions of problems and rewards them: the environment's prompt as text in, token ids out.
//   RolloutSource source(environment, tokenizer, sampler);
//   for (const RolloutGroup& group : source.sample(problems, {.samples = 8}, seed_of)) use(group.rollouts);
// The sampled tokens are the trained tokens: nothing is decoded and encoded again. Uses the interface Sampler only. One thread.
#pragma once
#include <functional>

#include "rl/environment.h"
#include "serving/ports.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

struct Rollout {
  std::vector<std::int32_t> tokens;      // with the end token, when it came
  std::vector<float> sampling_logprobs;  // of the distribution it was drawn from:
  float temperature = 1;                 // logits / temperature,
  std::vector<KeptTokens> kept_tokens;   // over what top-k, top-p and min-p kept, a set a token; empty: nothing was cut
  bool ended = false;                    // with an end token, within max_tokens
  double reward = 0;                     // 0 when it did not end
};

struct RolloutGroup {
  Problem problem;
  std::vector<std::int32_t> prompt;
  std::vector<Rollout> rollouts;
  std::vector<double> rewards() const;
};

struct RolloutOptions {
  std::int64_t samples = 8;
  double temperature = 1;  // 0: the likeliest token
  std::int64_t max_tokens = 16;
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1, min_p = 0;
  bool kept_tokens = false;  // Rollout::kept_tokens are told
};

class RolloutSource {
 public:
  // All three outlive this object. Error unsupported for a model without an end token.
  RolloutSource(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler);

  // One group per problem, in order. `seed_of(i)` is the sampling seed of problem i; its samples are numbered from 0.
  // Errors: numeric for a completion that failed; internal when weights changed on the way; what the sampler throws.
  std::vector<RolloutGroup> sample(const std::vector<Problem>& problems, const RolloutOptions& options,
                                   const std::function<std::uint64_t(std::size_t)>& seed_of);
  // The weights version of the last call's completions; they share one.
  std::uint64_t weights_version() const { return version_; }

 private:
  double reward(const Problem& problem, const Rollout& rollout) const;
  const Environment& environment_;
  const Tokenizer& tokenizer_;
  Sampler& sampler_;
  std::vector<std::int32_t> end_tokens_;
  std::uint64_t version_ = 0;
};

// The use of a random number; seeds of different uses, or of different items of one use, are independent.
enum class SeedUse : std::uint64_t { rollouts = 1, evaluation = 2, bootstrap = 3 };
std::uint64_t derived_seed(std::uint64_t seed, SeedUse use, std::uint64_t item);

}  // namespace lockstep
