// The settings of reinforcement learning, shared by the recipe, the demo and `train rl`. The defaults are the
// demo's: chosen on the lockstep arm alone (docs: README). Knows no model and no files. Plain values.
//   RlSettings settings; settings.steps = 20; check(settings);
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "rl/critic_settings.h"
#include "runs/trainer_port.h"

namespace lockstep {

struct RlSettings {
  std::string environment = "countdown";
  std::int64_t steps = 150;
  std::int64_t problems = 32, rollouts = 8;  // a step: problems x rollouts completions
  std::int64_t max_tokens = 16;              // of a turn, with its end token; a turn without one ends the rollout, whose final reward is then 0
  std::int64_t compact_at = 0;               // tokens of a context window, of an environment of many turns (rl/trajectory/play.h); 0: there is one
  bool chat = false;                         // conversations in the model's chat template (rl/conversation_environment.h); one window
  bool train_summaries = true;               // whether the summaries at the end of windows are trained; else they count as shown
  // What completions are drawn from. The ratios of the loss are over the same distribution.
  double temperature = 1;
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1, min_p = 0;
  std::string algorithm = "custom";      // rl/algorithms/algorithms.h; what follows says what it is made of
  std::string advantages = "mean-only";  // rl/advantages/advantages.h
  std::string loss = "ppo";              // runs/policy_loss.h
  std::vector<std::string> loss_config;  // options of the loss, KEY=VALUE
  // A factor of the policy term for a sampler with other numbers (docs/losses.md). One that weighs a ratio takes it over the trainer's log-probabilities at
  // the start of the step, unless loss_config names an anchor.
  std::string correction = "none";
  double clip_low = 0.2, clip_high = 0.28;
  std::string averaging = "token_mean";  // runs/policy_loss.h
  // KL to the model that training started from (--model): `kl_coefficient` times the estimator `kl` (docs/losses.md) of each token, added to the loss
  // or subtracted from the token's reward. 0: there is no reference.
  double kl_coefficient = 0;
  std::string kl = "k3", kl_in = "loss";
  std::int64_t redraws = 0;          // of a group whose rewards are all equal, before it is left out; 0: such groups stay
  std::int64_t overlong_tokens = 0;  // at the end of max_tokens, in which a completion's reward falls by overlong_penalty; 0: none
  double overlong_penalty = 1;
  std::int64_t epochs = 1, mini_batches = 1;            // passes over a step's data, and optimizer steps of each pass
  double stop_kl = 0;                                   // skips a step's other mini-batches once the policy's k3 to its sampler exceeds it; 0: never
  double importance_cap = 0;                            // truncated importance sampling at this ratio; 0: none
  std::string share_prompts = "auto";                   // off, forward (no bit changes), backward (declared); auto: whichever of the last two pays
  std::int64_t share_prompts_from = kSharePromptsFrom;  // tokens of a prompt from which on "auto" counts it
  double learning_rate = 1.5e-4;                        // the peak
  std::string schedule = "linear";                      // constant, linear, cosine (train/schedule.h)
  std::int64_t warmup = 10;                             // steps
  double beta1 = 0.95, beta2 = 0.999, eps = 1e-8, weight_decay = 0, max_norm = 1;
  std::uint64_t seed = 1;  // of problems and sampling
  CriticSettings critic = {};
};

// The names of rl/advantages, and the critic's.
std::vector<std::string> all_advantage_names();
// invalid_argument with the field, the value and what is allowed.
void check(const RlSettings& settings);
std::vector<std::string> kl_names(), kl_places(), correction_names();
// Whether the log-probabilities of a reference are needed, since KL to it is part of the loss or the reward.
bool needs_reference(const RlSettings& settings);
// Whether the ratio is over the trainer's log-probabilities at the start of the step (--loss-config anchor=proximal, or what --correction makes it).
bool needs_proximal(const RlSettings& settings);
// The loss of a step's data, without its normaliser.
PolicyLoss policy_loss(const RlSettings& settings);
// Everything that decides the bits of a run, in one line: the key of a published hash.
std::string describe(const RlSettings& settings);

// The optimizer's step at a given learning rate.
OptimizerStep optimizer_step(const RlSettings& settings, double learning_rate);

}  // namespace lockstep
