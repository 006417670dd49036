#include "cli/rl_options.h"

#include "jobs/rl_work.h"
#include "rl/environment.h"

namespace lockstep {

void add_rl_options(OptionTable& table, RlSettings& s, std::string& advantages) {
  advantages = advantage_kind_name(s.advantages);
  table.choice("environment", &s.environment, environment_names(), "What is learned");
  table.integer("steps", &s.steps, 1, 1'000'000'000, "N", "Optimizer steps");
  table.integer("problems", &s.problems, 1, 1 << 20, "N", "Problems a step");
  table.integer("rollouts", &s.rollouts, 2, 1 << 16, "N", "Completions a problem: the group");
  table.integer("max-tokens", &s.max_tokens, 1, 1 << 20, "N", "Tokens of a completion at most, its end token included; one that does not end earns nothing");
  table.number("temperature", &s.temperature, 0.001, 100, "X", "Of the rollouts");
  table.choice("advantages", &advantages, advantage_kind_names(), "How rewards of a group become advantages");
  table.number("clip-low", &s.clip_low, 0, 1, "X", "The ratio is clipped below 1 - X");
  table.number("clip-high", &s.clip_high, 0, 1e6, "X", "The ratio is clipped above 1 + X");
  table.number("importance-cap", &s.importance_cap, 0, 1e6, "C",
               "Weigh each token by min(trainer's / sampler's probability, C), for rollouts of another profile; one more forward a step. 0: not");
  table.choice("share-prompts", &s.share_prompts, share_prompts_names(),
               "What rollouts of a prompt share in training: its forward (no bit changes), or its backward too (other bits, recorded in checkpoints)");
  table.number("learning-rate", &s.learning_rate, 0, 1e3, "X", "Of AdamW, at its peak");
  table.choice("schedule", &s.schedule, schedule_names(), "Of the learning rate after the warm-up; linear and cosine end at 0");
  table.integer("warmup", &s.warmup, 0, 1'000'000'000, "N", "Steps of linear warm-up");
  table.number("beta1", &s.beta1, 0, 0.9999999, "X", "Of AdamW");
  table.number("beta2", &s.beta2, 0, 0.9999999, "X", "Of AdamW");
  table.number("eps", &s.eps, 1e-30, 1, "X", "Of AdamW");
  table.number("weight-decay", &s.weight_decay, 0, 1e3, "X", "Of AdamW, decoupled, of matrices");
  table.number("max-norm", &s.max_norm, 0, 1e9, "X", "The gradient is clipped to this norm; 0: never");
  table.seed("seed", &s.seed, "Of problems and sampling");
}

}  // namespace lockstep
