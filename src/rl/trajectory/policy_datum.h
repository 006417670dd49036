// A chain of a rollout as training data. Pure functions.
//   const PolicyDatum datum = policy_datum(rollout.chains[0], rollout.temperature);
#pragma once
#include <utility>

#include "rl/trajectory/trajectory.h"
#include "runs/trainer_port.h"

namespace lockstep {

// Inputs are the chain's tokens up to the one before its last trained token. A target that the policy wrote has weight 1, advantage 0, the sampler's
// log-probability and its kept tokens; what the policy was shown is no target (-1). Error invalid_argument for a chain without turns or trained
// tokens, whose first turn shows nothing, or with a turn without tokens.
PolicyDatum policy_datum(const Chain& chain, float temperature);

// `use(row)` for each row whose target the policy wrote, in order.
template <class Use>
void each_trained(const PolicyDatum& datum, Use&& use) {
  for (std::size_t row = 0; row < datum.weights.size(); ++row)
    if (datum.weights[row] != 0) use(row);
}

}  // namespace lockstep
