// Rollouts as a person reads them: prompt and completion in pieces of text, a token each, with both log-probabilities, advantage,
// weight in the loss, reward and how it ended. For transcripts.jsonl of a run; written, never read back by training.
// Pure functions.
//   training.step(i, optimizer, [&](const StepRollouts& s) { for (auto& line : transcripts_of(s, tokenizer, 8)) log.append(line); });
#pragma once
#include <nlohmann/json.hpp>

#include "rl/rollout.h"
#include "runs/transcript_text.h"
#include "runs/trainer_port.h"

namespace lockstep {

// What a step sampled and trained, as PolicyTraining hands it to who asks. data and result are in the order of the rollouts.
struct StepRollouts {
  std::int64_t step = 0;  // its number, from 0
  std::uint64_t weights_version = 0;
  const std::vector<RolloutGroup>& groups;
  const std::vector<PolicyDatum>& data;
  const PolicyResult& result;
};

// At most `count` rollouts of one group: the first whose rewards differ, for that is where something is learned, else the
// first. One JSON object each: step (from 1), weights_version, group, rollout, reward, finish (stop or length), prompt (pieces), prompt_ids,
// tokens (pieces), ids, sampling_logprobs, logprobs (training forward), entropies, advantages, weights; "cut" counts tokens left out.
std::vector<nlohmann::ordered_json> transcripts_of(const StepRollouts& step, const Tokenizer& tokenizer, std::int64_t count);

}  // namespace lockstep
