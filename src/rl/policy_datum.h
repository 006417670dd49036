// A rollout as training data. Pure functions.
//   const PolicyDatum datum = policy_datum(group.prompt, group.rollouts[0], advantage);
#pragma once
#include "rl/rollout.h"
#include "runs/trainer_port.h"

namespace lockstep {

// Inputs = prompt and completion but for the last token; the completion's targets have weight 1, the rollout's advantage and the sampler's
// log-probability, and the distribution that it is of; the prompt's rows are not scored (target -1). Error invalid_argument for an empty prompt or completion.
PolicyDatum policy_datum(const std::vector<std::int32_t>& prompt, const Rollout& rollout, float advantage);

}  // namespace lockstep
