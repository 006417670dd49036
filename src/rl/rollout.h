// Completions of problems, sampled and rewarded: text in at one end (the environment's prompt), token ids at the other.
// The tokens that were sampled are the tokens that are trained: nothing is decoded and encoded again.
// Talks to the port Sampler alone. One thread.
//   RolloutSource source(environment, tokenizer, sampler);
//   for (const RolloutGroup& group : source.sample(problems, {.samples = 8}, seed_of)) use(group.rollouts);
#pragma once
#include <functional>

#include "rl/environment.h"
#include "serving/ports.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

struct Rollout {
  std::vector<std::int32_t> tokens;      // with the end token, when it came
  std::vector<float> sampling_logprobs;  // of the distribution it was drawn from
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
};

class RolloutSource {
 public:
  // All three outlive this object. Error unsupported for a model without an end token.
  RolloutSource(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler);

  // One group a problem, in order. `seed_of(i)` is the sampling seed of problem i; its samples are numbered from 0.
  // Errors: numeric for a completion that failed; internal when weights changed on the way; what the sampler throws.
  std::vector<RolloutGroup> sample(const std::vector<Problem>& problems, const RolloutOptions& options,
                                   const std::function<std::uint64_t(std::size_t)>& seed_of);
  // Of the completions of the last call; they share one.
  std::uint64_t weights_version() const { return version_; }

 private:
  double reward(const Problem& problem, const Rollout& rollout) const;
  const Environment& environment_;
  const Tokenizer& tokenizer_;
  Sampler& sampler_;
  std::vector<std::int32_t> end_tokens_;
  std::uint64_t version_ = 0;
};

// What a random number is for; seeds of different uses, or of different items of one, have nothing in common.
enum class SeedUse : std::uint64_t { rollouts = 1, evaluation = 2, bootstrap = 3 };
std::uint64_t derived_seed(std::uint64_t seed, SeedUse use, std::uint64_t item);

}  // namespace lockstep
