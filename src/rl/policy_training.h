// One step of reinforcement learning over the two ports: problems, rollouts, rewards, advantages, one forward_backward over all
// of them, one optim_step. A step is a function of (settings, step number, weights), so a run resumes from its step alone.
// Knows no files, no engine, no schedule. One thread.
//   PolicyTraining training(environment, tokenizer, sampler, trainer, settings);
//   PolicyStep s = training.step(0, optimizer_step(settings, rate));
#pragma once
#include <nlohmann/json.hpp>

#include "rl/grpo.h"
#include "rl/kl.h"
#include "rl/transcript.h"

namespace lockstep {

struct PolicyStep {
  std::int64_t step = 0;                      // its number, from 0
  double reward = 0;                          // mean over rollouts
  double pass_at_1 = 0, pass_at_group = 0;    // share of right rollouts; of problems with a right one
  double zero_spread = 0;                     // share of groups whose rewards are all equal: they teach nothing
  double ended = 0;                           // share of rollouts that ended by themselves
  KlSums kl;                                  // sampler against training forward, before the update
  std::int64_t truncated = 0;                 // tokens whose importance ratio was above the cap
  double entropy = 0, loss = 0, gradient_norm = 0, learning_rate = 0;
  std::int64_t tokens = 0, rows = 0;          // sampled; computed in training
  double rollout_seconds = 0, train_seconds = 0;
};
// For metrics.jsonl; "step" counts from 1, as a checkpoint after it does.
nlohmann::ordered_json to_json(const PolicyStep& step);

class PolicyTraining {
 public:
  // All but settings outlive this object. Errors: invalid_argument for a setting, and when sampler and trainer have different
  // numerics profiles without allow_profile_mix (both digests are named).
  PolicyTraining(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler, TrainerPort& trainer, const RlSettings& settings,
                 bool allow_profile_mix = false);

  // Errors: cancelled (Ctrl-C while sampling: the weights are as before), numeric, internal when the sampler does not follow the
  // trainer's weights.
  // `seen` is shown the rollouts of a step that was taken; it changes nothing.
  PolicyStep step(std::int64_t number, const OptimizerStep& optimizer, const std::function<void(const StepRollouts&)>& seen = {});

 private:
  RolloutSource source_;
  const Environment& environment_;
  TrainerPort& trainer_;
  RlSettings settings_;
};

}  // namespace lockstep
