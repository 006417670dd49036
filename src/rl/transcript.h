// Rollouts in readable form: prompt and completion as one piece of text per token, with both log-probabilities, advantage,
// weight in the loss, reward and finish reason. For transcripts.jsonl of a run; training never reads it back. Pure functions.
//   training.step(i, optimizer, [&](const StepRollouts& s) { for (auto& line : transcripts_of(s, tokenizer, 8)) log.append(line); });
#pragma once
#include <nlohmann/json.hpp>

#include "rl/rollout.h"
#include "runs/trainer_port.h"
#include "runs/transcript_text.h"

namespace lockstep {

// What a step sampled and trained, as PolicyTraining passes it to `seen`. data and result are in the order of the rollouts and their chains.
struct StepRollouts {
  std::int64_t step = 0;  // its number, from 0
  std::uint64_t weights_version = 0;
  const std::vector<RolloutGroup>& groups;
  const std::vector<PolicyDatum>& data;
  const PolicyResult& result;
  const std::vector<std::vector<float>>& values;  // a critic's, by datum and row; empty without one
};

// At most `count` rollouts of one group: the first group whose rewards differ (only such groups give a gradient), else the
// first one. One JSON object for each chain of them: step (from 1), weights_version, group, rollout, reward, finish (stop or length), prompt
// (pieces),
// prompt_ids, tokens (pieces), ids, sampling_logprobs, logprobs (training forward), entropies, advantages, weights, with a critic values; "cut" counts
// tokens left out. Of a rollout of many turns also chain and chains (its number, from 0, and how many there are) and turns: of each its kind (answer or
// summary), begin and end among `tokens`, and reward. What the policy was shown between its turns has weight 0, and null for numbers that only what it
// wrote has.
std::vector<nlohmann::ordered_json> transcripts_of(const StepRollouts& step, const Tokenizer& tokenizer, std::int64_t count);

}  // namespace lockstep
