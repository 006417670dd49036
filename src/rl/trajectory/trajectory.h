// A rollout as it was sampled: chains of turns, one chain for each context window. A turn is what the policy was shown and what it wrote. A rollout
// of one answer is one chain of one turn. What the policy wrote is trained (summaries only where settings say so), what it was shown is not; no text
// is decoded and encoded again. Plain values.
//   for (const Chain& chain : rollout.chains) for (const Turn& turn : chain.turns) use(turn.shown, turn.tokens);
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/kept_tokens.h"
#include "rl/environment.h"

namespace lockstep {

struct Turn {
  std::vector<std::int32_t> shown = {};       // before it: in a chain's first turn the prompt, else an observation or the request for a summary
  std::vector<std::int32_t> tokens = {};      // written by the policy, with the end token if there was one
  std::vector<float> sampling_logprobs = {};  // of each token, under the distribution that it was drawn from
  std::vector<KeptTokens> kept_tokens = {};   // what top-k, top-p and min-p kept for each token; empty: nothing was cut
  std::uint64_t weights_version = 0;          // of the weights that wrote it
  bool ended = false;                         // with an end token, within max_tokens
  bool summary = false;                       // of the window, for the next chain; else an answer
  bool trained = true;                        // else what was written counts as shown
  double reward = 0;                          // for this turn, unless it is the last
};

struct Chain {
  std::vector<Turn> turns;
  std::int64_t length() const;   // of all its tokens
  std::int64_t written() const;  // of those that the policy wrote
};

struct Rollout {
  std::vector<Chain> chains = {};  // in time
  float temperature = 1;           // logits / temperature, of all its tokens
  bool ended = false;              // every turn has an end token, and the last one ended the episode
  double reward = 0;               // at its end, beside those of its turns; 0 when it did not end
  std::int64_t rolled_back = 0;    // tokens that the policy wrote and a check removed (Episode::check); they are in no turn
  double total_reward() const;
  std::int64_t written() const;  // tokens of the policy
  std::int64_t trained() const;  // of these, those that are trained
  std::int64_t longest() const;  // of one turn
  std::int64_t turns() const;
};

// The rollouts of one problem.
struct RolloutGroup {
  Problem problem;
  std::vector<Rollout> rollouts;
  std::vector<double> rewards() const;  // total ones
};

}  // namespace lockstep
