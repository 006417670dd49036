// The port through which reinforcement learning trains: plain data in, log-probabilities and metrics out. In this process
// (runs/local_trainer.h) or, one day, over a wire: nothing here knows a transport, a trainer or text.
// One thread at a time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

// One trained sequence: row i holds tokens[i] and predicts targets[i]; all vectors have one entry a row.
struct PolicyDatum {
  std::vector<std::int32_t> tokens, targets;
  std::vector<float> weights;       // 0: not trained (prompt)
  std::vector<float> advantages;
  std::vector<float> old_logprobs;  // the sampler's sampling log-probability of the target
  std::int64_t prefix_group = -1, shared_prefix = 0;  // declared sharing (train/data.h), with SharePrompts::backward alone
};

// What rollouts of one prompt share in training. Forward: its rows are computed once, and no bit changes. Backward: they are one
// sequence there too, which gives gradients other bits; it is declared in the data and recorded in checkpoints.
enum class SharePrompts { off, forward, backward };

struct PolicyLoss {
  float clip_low = 0.2f, clip_high = 0.28f;
  double normaliser = 0;  // weights are divided by this; 0: their sum (token-level loss over the whole batch)
  double importance_cap = 0;  // truncated importance sampling at this ratio (runs/truncated_importance.h); 0: none
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
  virtual PolicyResult forward_backward(const std::vector<PolicyDatum>& data, const PolicyLoss& loss) = 0;
  // Applies the step, publishes the new weights version to the samplers that follow this trainer; returns the gradient norm.
  virtual double optim_step(const OptimizerStep& step) = 0;
  virtual std::string profile_digest() const = 0;
  virtual std::uint64_t weights_version() const = 0;
};

}  // namespace lockstep
