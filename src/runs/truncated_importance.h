// Truncated importance sampling, for rollouts whose sampler was not the trainer bit for bit: each trained token's weight is multiplied by
//   w = min(exp(o - q), C)
// where q is the sampler's log-probability, o the trainer's under the same weights before the update, C the cap. The policy ratio is then
// against o. w is a constant of the loss; the normaliser stays. Where o and q have the same bits w is 1 and nothing changes.
// In double with our own exponential, rounded once: the same on every machine. Pure function.
//   const std::int64_t truncated = weigh_by_importance(sequences, trainer.score(sequences), 2.0);
#pragma once
#include "train/trainer.h"

namespace lockstep {

// old_logprobs become o. Returns how many tokens' ratios were above the cap.
std::int64_t weigh_by_importance(std::vector<TrainSequence>& sequences, const std::vector<std::vector<float>>& trainer_logprobs, double cap);

}  // namespace lockstep
