// Truncated importance sampling, for rollouts whose sampler did not have the trainer's bits: each trained token's weight is multiplied by
//  w = min(exp(o - q), C)
// where q is the sampler's log-probability, o the trainer's under the same weights before the update, C the cap. The policy ratio is then
// against o. w is a constant in the loss; the normaliser does not change. Where o and q have the same bits w is 1 and nothing changes.
//   const std::int64_t truncated = weigh_by_importance(sequences, trainer.score(sequences), 2.0);
// In double with our own exponential, rounded once: the same on every machine. Pure function.
#pragma once
#include "train/trainer.h"

namespace lockstep {

// old_logprobs become o. Returns how many tokens' ratios were above the cap.
std::int64_t weigh_by_importance(std::vector<TrainSequence>& sequences, const std::vector<std::vector<float>>& trainer_logprobs, double cap);

}  // namespace lockstep
