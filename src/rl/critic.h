// The critic's part of a step of reinforcement learning: values of the sampled tokens, the advantages estimated from them (rl/gae.h), and the
// critic's own optimizer steps. Over the interface ValuePort: knows no model and no files. One thread.
//   Critic critic(port, settings); critic.judge(batch, rl); const CriticFigures f = critic.learn(optimizer);
#pragma once
#include <nlohmann/json.hpp>

#include "rl/critic_settings.h"
#include "rl/step_batch.h"
#include "runs/value_port.h"

namespace lockstep {

// Figures of one step; values and returns are those from before the critic learned from them.
struct CriticFigures {
  double value_loss = 0, gradient_norm = 0, held = 0;  // means over the critic's epochs
  double explained_variance = 0;                       // 1 - var(return - value) / var(return); 0 where the returns are all equal
  double mean_value = 0, mean_return = 0;              // over trained tokens
  double advantage_low = 0, advantage_tenth = 0, advantage_median = 0, advantage_ninetieth = 0, advantage_high = 0;  // of what the policy is trained with
};
nlohmann::ordered_json to_json(const CriticFigures& figures);

class Critic {
 public:
  // The port outlives this object.
  Critic(ValuePort& port, const CriticSettings& settings) : port_(port), settings_(settings) {}

  // Fills the advantages and values of `batch`, for all rollouts of the step, chain by chain. A turn's reward counts at its last token; the final
  // reward, with overlong punishment, at the rollout's last token. KL costs of tokens (rl/step_batch.h) are subtracted from their rewards.
  void judge(StepBatch& batch, const RlSettings& settings);
  // Takes optimizer steps towards the returns of the batch that was judged last.
  CriticFigures learn(const OptimizerStep& optimizer);

 private:
  ValuePort& port_;
  CriticSettings settings_;
  std::vector<ValueDatum> data_;
  CriticFigures figures_;
};

}  // namespace lockstep
