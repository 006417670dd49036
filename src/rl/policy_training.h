// One step of reinforcement learning over the interfaces Sampler and TrainerPort: problems, rollouts, rewards and advantages (rl/step_batch.h), and
// over them one forward_backward and one optim_step, or several of both (epochs, mini-batches).
//   PolicyTraining training(environment, tokenizer, sampler, trainer, settings);
//   PolicyStep s = training.step(0, optimizer_step(settings, rate));
// A step is a function of (settings, step number, weights), so a run resumes from its step alone.
// Knows no files, no engine, no schedule. One thread.
#pragma once
#include <nlohmann/json.hpp>

#include "rl/critic.h"
#include "rl/kl.h"
#include "rl/step_batch.h"
#include "rl/transcript.h"

namespace lockstep {

struct PolicyStep {
  std::int64_t step = 0;                    // its number, from 0
  double reward = 0;                        // mean over rollouts
  double pass_at_1 = 0, pass_at_group = 0;  // share of right rollouts; of problems with a right one
  double zero_spread = 0;                   // share of groups whose rewards are all equal, which give no gradient
  double ended = 0;                         // share of rollouts that ended by themselves
  KlSums kl;                                // sampler against training forward, under the weights that sampled: before the first update
  KlSums drift;                             // the same of later mini-batches, whose policy has moved
  std::int64_t truncated = 0;               // tokens whose importance ratio was above the cap
  double entropy = 0, loss = 0, gradient_norm = 0, learning_rate = 0;  // means over the mini-batches
  std::int64_t tokens = 0, rows = 0;                                   // sampled; computed in training
  double turns = 1, chains = 1;                                        // means over rollouts
  std::int64_t updates = 0, skipped = 0;                               // optimizer steps; mini-batches left out by stop_kl
  std::int64_t redrawn = 0, dropped = 0;                               // groups (rl/step_batch.h)
  KlSums reference;                                                    // sampler against reference, where there is one (rl/step_batch.h)
  std::int64_t proximal_forwards = 0;                                  // rollouts whose proximal log-probabilities took a forward of their own
  double rollout_seconds = 0, train_seconds = 0, critic_seconds = 0;   // train_seconds: of the policy
  CriticFigures critic;
};
// For metrics.jsonl; "step" counts from 1, as the checkpoint after it. Figures of optional features appear only where the settings use them.
nlohmann::ordered_json to_json(const PolicyStep& step, const RlSettings& settings);

// A token whose two log-probabilities differ where they are to be equal.
struct DifferentToken {
  std::int64_t step;         // from 0
  const PolicyDatum& datum;  // its text
  std::size_t row;           // whose target it is
  float sampled, trained;
  const std::vector<float>& logprobs;  // of training, by row
};

struct PolicyTrainingOptions {
  bool allow_profile_mix = false;  // sampler and trainer may have different numerics profiles; their log-probabilities then differ
  bool stop_at_difference = true;  // see step(); not with a mix
  // Called with a step's data after its updates, also during a critic's warm-up: for anything else that learns from the rollouts, under the new
  // weights.
  std::function<void(const std::vector<PolicyDatum>&)> learned = {};
  // Called before step() ends with the error of a difference; what it returns ends the message.
  std::function<std::string(const DifferentToken&)> differs = {};
  ValuePort* critic = nullptr;  // where the settings have one; outlives the training
};

class PolicyTraining {
 public:
  // All but settings outlive this object. Errors: invalid_argument for a setting, and when sampler and trainer have different
  // numerics profiles without allow_profile_mix (both digests are named).
  PolicyTraining(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler, TrainerPort& trainer, const RlSettings& settings,
                 const PolicyTrainingOptions& options = {});

  // Errors: cancelled (Ctrl-C while sampling: the weights are as before); numeric; internal when the sampler does not follow the
  // trainer's weights, and, before anything is learned from it, when a token's two log-probabilities differ in a bit: step, problem, rollout,
  // token and both numbers are named, and the gradients are discarded.
  // `seen` is called with the rollouts of a completed step; it changes nothing.
  PolicyStep step(std::int64_t number, const OptimizerStep& optimizer, const std::function<void(const StepRollouts&)>& seen = {});

 private:
  // A part of the batch: `first` and `count` of its data.
  void train(const StepBatch& batch, std::size_t first, std::size_t count, const OptimizerStep& optimizer, PolicyStep& result, PolicyResult& policy);
  std::int64_t add_proximal(StepBatch& batch);
  [[noreturn]] void refuse_difference(const StepBatch& batch, std::int64_t number, std::size_t datum, std::size_t row, const std::vector<float>& logprobs);

  RolloutSource source_;
  std::optional<Critic> critic_;
  const Environment& environment_;
  TrainerPort& trainer_;
  RlSettings settings_;
  PolicyTrainingOptions options_;
  bool exact_ = true;  // sampler and trainer have one numerics profile
};

}  // namespace lockstep
