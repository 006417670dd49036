// Group-relative advantages (GRPO, Shao et al. 2024; mean-only: Dr. GRPO, Liu et al. 2025). They steer training, so they are
// computed in double in a fixed order, with nothing but + - * / and the square root: the same bits on every machine.
// Pure functions.
//   std::vector<float> a = group_advantages({1, 0, 0, 1}, AdvantageKind::mean_only);
#pragma once
#include <vector>

#include "rl/rollout.h"
#include "rl/settings.h"

namespace lockstep {

inline constexpr double kAdvantageEps = 1e-6;

// One advantage a rollout of the group. Equal rewards: all +0. The standard deviation is the sample's (n - 1).
// Error invalid_argument for fewer than 2.
std::vector<float> group_advantages(const std::vector<double>& rewards, AdvantageKind kind);
bool all_equal(const std::vector<double>& rewards);

// A rollout as training data: inputs = prompt and completion but for the last token; the completion's targets have weight 1, the
// rollout's advantage and the sampler's log-probability; the prompt's rows are not scored (target -1).
PolicyDatum policy_datum(const std::vector<std::int32_t>& prompt, const Rollout& rollout, float advantage);

}  // namespace lockstep
