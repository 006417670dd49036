// What reinforcement learning is told: one set of numbers, shared by the recipe, the demo and `train rl`. The defaults are the
// demo's: chosen on the lockstep arm alone (docs: README). Knows no model and no files. Plain values.
//   RlSettings settings; settings.steps = 20; check(settings);
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runs/trainer_port.h"

namespace lockstep {

enum class AdvantageKind {
  group_normalised,  // GRPO: (r - mean) / (standard deviation + 1e-6), over the group
  mean_only,         // r - mean (Dr. GRPO)
};
std::vector<std::string> advantage_kind_names();
AdvantageKind advantage_kind_by_name(const std::string& name);  // invalid_argument
std::string advantage_kind_name(AdvantageKind kind);

std::vector<std::string> share_prompts_names();
SharePrompts share_prompts_by_name(const std::string& name);  // invalid_argument

struct RlSettings {
  std::string environment = "countdown";
  std::int64_t steps = 150;
  std::int64_t problems = 32, rollouts = 8;  // a step: problems x rollouts completions
  std::int64_t max_tokens = 16;              // of a completion, its end token included; one that does not end earns nothing
  double temperature = 1;
  AdvantageKind advantages = AdvantageKind::mean_only;
  double clip_low = 0.2, clip_high = 0.28;
  double importance_cap = 0;                 // truncated importance sampling at this ratio; 0: none
  std::string share_prompts = "forward";     // off, forward (no bit changes), backward (declared)
  double learning_rate = 1.5e-4;             // the peak
  std::string schedule = "linear";           // constant, linear, cosine (train/schedule.h)
  std::int64_t warmup = 10;                  // steps
  double beta1 = 0.95, beta2 = 0.999, eps = 1e-8, weight_decay = 0, max_norm = 1;
  std::uint64_t seed = 1;                    // of problems and sampling
};

// invalid_argument with the field, the value and what is allowed.
void check(const RlSettings& settings);
// Everything that decides the bits of a run, in one line: what a published hash is published for.
std::string describe(const RlSettings& settings);

// The optimizer's step at a given learning rate.
OptimizerStep optimizer_step(const RlSettings& settings, double learning_rate);

}  // namespace lockstep
