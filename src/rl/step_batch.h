// What one step samples and trains: the groups that give a gradient, and their rollouts as training data.
//   StepBatch batch = step_batch(environment, source, settings, number, {.reference = [&](const auto& data) { return trainer.reference(data); }});
// A function of (settings, step number, weights). One thread.
#pragma once
#include <functional>

#include "rl/kl.h"
#include "rl/rollout.h"
#include "rl/settings.h"
#include "rl/trajectory/policy_datum.h"

namespace lockstep {

struct StepBatch {
  std::vector<RolloutGroup> groups;             // those that are trained
  std::vector<std::size_t> begins;              // where each group's data begin in `data`, and the end of the last
  std::vector<PolicyDatum> data;                // the chains of the groups' rollouts, in order
  std::vector<std::vector<float>> values;       // a critic's, by datum and row, where there is one (rl/critic.h)
  std::int64_t rollouts = 0, tokens = 0;        // that were sampled, of groups that are left out too
  std::int64_t turns = 0, chains = 0;           // of these rollouts
  std::int64_t redrawn = 0, dropped = 0;        // groups sampled again, and left out in the end
  double reward = 0, pass_at_1 = 0, ended = 0;  // means over all rollouts that were sampled
  double pass_at_group = 0, zero_spread = 0;    // shares of the problems' last groups
  KlSums reference;                             // the sampler against the reference, over the trained tokens
};

// Log-probabilities of the rollouts' tokens under other models, by datum and row (TrainerPort::score); requested once a step, for all rollouts.
struct StepScores {
  using Score = std::function<std::vector<std::vector<float>>(const std::vector<PolicyDatum>& data)>;
  Score reference;  // where needs_reference(settings)
};

// Groups whose rewards are all equal are sampled again, with a new problem each time, settings.redraws times at most, and then left out (DAPO's
// dynamic sampling); with 0 redraws they stay. A completion that reaches into the overlong tokens loses reward in proportion (DAPO's soft overlong
// punishment, of the rollout's longest turn). Punishment and KL costs change advantages only: reward, pass@1 and equality are the environment's. All
// chains of a rollout are trained, each token with the rollout's advantage.
// Errors: those of RolloutSource::sample, token_advantages and of the scores.
StepBatch step_batch(const Environment& environment, RolloutSource& source, const RlSettings& settings, std::int64_t number, const StepScores& scores = {});

// The KL cost of a token: settings.kl_coefficient times the estimate for its log-probability log_pi and the reference's log_ref.
double kl_cost(float log_pi, float log_ref, const RlSettings& settings);

// The reward of overlong tokens: 0 up to max_tokens - overlong_tokens, then falling linearly to -overlong_penalty at max_tokens.
double overlong_punishment(std::int64_t tokens, const RlSettings& settings);

}  // namespace lockstep
