// A rollout as training data. Pure functions.
//   const PolicyDatum datum = policy_datum(group.prompt, group.rollouts[0], advantages);
#pragma once
#include "rl/rollout.h"
#include "runs/trainer_port.h"

namespace lockstep {

// Inputs = prompt and completion but for the last token; the completion's targets have weight 1, the advantage of their own (empty: 0) and the
// sampler's log-probability, and the distribution that it is of; the prompt's rows are not scored (target -1). Error invalid_argument for an empty prompt or
// completion, or advantages of another number.
PolicyDatum policy_datum(const std::vector<std::int32_t>& prompt, const Rollout& rollout, const std::vector<float>& advantages);

}  // namespace lockstep
