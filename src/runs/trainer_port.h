// The interface through which reinforcement learning trains: plain data in, log-probabilities and metrics out; the same for all parameters and for an
// adapter. Implemented in this process (runs/local_trainer.h); nothing here knows a transport, a trainer or text. One thread at a time.
//   trainer.forward_backward(data, {.name = "ppo"}); trainer.optim_step({.learning_rate = 1e-4});
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/kept_tokens.h"
#include "runs/share_prompts.h"

namespace lockstep {

class RunDirectory;

// One trained sequence: row i holds tokens[i] and predicts targets[i]; all vectors have one entry per row.
struct PolicyDatum {
  std::vector<std::int32_t> tokens, targets;
  std::vector<float> weights;  // 0: not trained (prompt)
  std::vector<float> advantages;
  std::vector<float> old_logprobs;                    // the sampler's sampling log-probability of the target
  std::int64_t prefix_group = -1, shared_prefix = 0;  // declared sharing (train/data.h), with SharePrompts::backward alone
  float temperature = 1;                              // targets were drawn from the softmax of logits / temperature,
  std::vector<KeptTokens> kept_tokens = {};           // over these tokens (base/kept_tokens.h); empty: over all
  std::vector<float> proximal_logprobs = {};          // the trainer's at the start of the step, where the loss's ratio is over them
  std::vector<float> reference_logprobs = {};         // of the initial model, where the loss has a KL term
};

struct PolicyLoss {
  std::string name = "ppo";                  // a policy loss of train/losses.h
  float clip_low = 0.2f, clip_high = 0.28f;  // for a loss that clips: the ratio is clipped to [1 - clip_low, 1 + clip_high]
  std::string averaging = "token_mean";      // runs/policy_loss.h
  double length_norm = 0;                    // what averaging sequence_token_sum_norm divides by
  std::vector<std::string> options = {};     // of the loss, KEY=VALUE
  double normaliser = 0;                     // weights are divided by this; 0: what the averaging says (train/data.h)
  double importance_cap = 0;                 // truncated importance sampling at this ratio (runs/truncated_importance.h); 0: none
};

struct PolicyResult {
  std::vector<std::vector<float>> logprobs, entropies;  // of the training forward, per datum, per row
  double loss = 0;
  std::int64_t truncated = 0;  // tokens whose ratio was above the cap
};

struct OptimizerStep {
  double learning_rate = 1e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0, max_norm = 1.0;
};

class TrainerPort {
 public:
  virtual ~TrainerPort() = default;
  // Log-probabilities of the targets under the current weights, per datum, per row; 0 where a row has none. No gradient.
  virtual std::vector<std::vector<float>> score(const std::vector<PolicyDatum>& data) = 0;
  // The same under the initial model. Error unsupported when no reference was kept.
  virtual std::vector<std::vector<float>> reference(const std::vector<PolicyDatum>& data) = 0;
  virtual PolicyResult forward_backward(const std::vector<PolicyDatum>& data, const PolicyLoss& loss) = 0;
  // Discards gradients that no step has used.
  virtual void abandon_gradients() = 0;
  // Applies the step, publishes the new weights version to the samplers that follow this trainer; returns the gradient norm.
  virtual double optim_step(const OptimizerStep& step) = 0;
  // Saves a checkpoint with the caller's `position` in the run's folder; deletes older ones but `keep_last` (0: keeps all).
  virtual void save(const RunDirectory& run, const nlohmann::ordered_json& position, std::int64_t keep_last) = 0;
  // Loads the newest valid checkpoint, publishes its weights and returns its position; an empty object when there is none.
  virtual nlohmann::ordered_json load(const RunDirectory& run) = 0;
  virtual std::string profile_digest() const = 0;
  virtual std::uint64_t weights_version() const = 0;
};

}  // namespace lockstep
