// Samples rollouts of problems: episodes as text (rl/trajectory/play.h) in, chains of token ids out. All rollouts of a call take their first turns
// together, then their second ones, and so on. Plays that were begun elsewhere are played to their ends too. Uses the interface Sampler only. One thread.
//   RolloutSource source(environment, tokenizer, sampler);
//   for (const RolloutGroup& group : source.sample(problems, {.samples = 8}, seed_of)) use(group.rollouts);
#pragma once
#include <functional>

#include "rl/trajectory/play.h"
#include "serving/ports.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

struct RolloutOptions {
  std::int64_t samples = 8;
  double temperature = 1;        // 0: the likeliest token
  std::int64_t max_tokens = 16;  // of a turn
  std::int64_t top_k = 0;        // 0: all
  double top_p = 1, min_p = 0;
  bool kept_tokens = false;     // whether Turn::kept_tokens are filled
  std::int64_t compact_at = 0;  // tokens of a context window (rl/trajectory/play.h); 0: there is one
  bool train_summaries = true;
};

// The noise of one play: its sampling seed, and its number among those of that seed.
struct PlayNoise {
  std::uint64_t seed = 0;
  std::int32_t sample = 0;
};

// Error invalid_argument for a number that is not allowed; for a task of one answer only 0 is.
void check_compact_at(std::int64_t compact_at, bool many_turns, std::string_view environment);
// Error invalid_argument: a conversation has one window.
void check_chat(bool chat, std::int64_t compact_at);

class RolloutSource {
 public:
  // All three outlive this object. Error unsupported for a model without an end token.
  RolloutSource(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler);

  // One group per problem, in order. `seed_of(i)` is the sampling seed of problem i; its samples are numbered from 0. Noise is a function of seed, sample
  // and position, so each later context window has a seed of its own.
  // Errors: numeric for a completion that failed; internal when weights changed on the way; what the sampler throws.
  std::vector<RolloutGroup> sample(const std::vector<Problem>& problems, const RolloutOptions& options,
                                   const std::function<std::uint64_t(std::size_t)>& seed_of);
  // Continues each play to its end; those that are over stay as they are. A play that was interrupted and goes on with the noise it began with becomes
  // the same rollout. Returns, by play, the tokens that were rolled back. Errors: as sample().
  std::vector<std::int64_t> play_on(std::vector<Play>& plays, const RolloutOptions& options, const std::function<PlayNoise(std::size_t)>& noise_of);
  // The weights version of the last call's completions; they share one.
  std::uint64_t weights_version() const { return version_; }

 private:
  Turn turn_of(SampleResult&& result, Play& play) const;
  std::shared_ptr<const SampleCheck> check_of(Play& play) const;
  const Environment& environment_;
  const Tokenizer& tokenizer_;
  Sampler& sampler_;
  std::vector<std::int32_t> end_tokens_;
  std::uint64_t version_ = 0;
};

// The use of a random number; seeds of different uses, or of different items of one use, are independent.
enum class SeedUse : std::uint64_t { rollouts = 1, evaluation = 2, bootstrap = 3, window = 4 };
std::uint64_t derived_seed(std::uint64_t seed, SeedUse use, std::uint64_t item);

}  // namespace lockstep
