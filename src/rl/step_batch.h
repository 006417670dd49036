// What one step samples and trains: the groups that give a gradient, and their rollouts as training data.
//   StepBatch batch = step_batch(environment, source, settings, number);
// A function of (settings, step number, weights). One thread.
#pragma once
#include "rl/policy_datum.h"
#include "rl/settings.h"

namespace lockstep {

struct StepBatch {
  std::vector<RolloutGroup> groups;             // that are trained
  std::vector<std::size_t> begins;              // of each group's data, and behind the last
  std::vector<PolicyDatum> data;                // the groups' rollouts in order
  std::int64_t rollouts = 0, tokens = 0;        // that were sampled, of groups that are left out too
  std::int64_t redrawn = 0, dropped = 0;        // groups sampled again, and left out in the end
  double reward = 0, pass_at_1 = 0, ended = 0;  // means over all rollouts that were sampled
  double pass_at_group = 0, zero_spread = 0;    // shares of the problems' last groups
};

// Groups whose rewards are all equal are sampled again, with a new problem each time, settings.redraws times at most, and then left out (DAPO's
// dynamic sampling); with 0 they stay. A completion whose last tokens are among the overlong ones loses reward in proportion, which shapes
// advantages alone (DAPO's soft overlong punishment): reward, pass@1 and equality are those of the environment.
// Errors: those of RolloutSource::sample and estimate_advantages.
StepBatch step_batch(const Environment& environment, RolloutSource& source, const RlSettings& settings, std::int64_t number);

// What overlong tokens cost: 0 up to max_tokens - overlong_tokens, from there falling to -overlong_penalty at max_tokens.
double overlong_punishment(std::int64_t tokens, const RlSettings& settings);

}  // namespace lockstep
