// What a training step is fed and what it returns. Host data only.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/head/head.h"

namespace lockstep {

// One sequence: input row i predicts targets[i] with weights[i]; all vectors have one entry a token (advantages and
// old_logprobs may be empty unless the loss is the policy's).
struct TrainSequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;    // -1: not scored
  std::vector<float> weights;           // 0: masked
  std::vector<float> advantages;
  std::vector<float> old_logprobs;      // the sampler's sampling log-probability of the target
  // Declared sharing: sequences of a call with the same group (0 or more) have the same first `shared_prefix` tokens, without targets.
  // These are one sequence, in the backward too: other bits of gradients (docs/numerics.md, "Declared shared prefixes").
  std::int64_t prefix_group = -1, shared_prefix = 0;

  // A whole text as training data: inputs tokens[0..n-2], targets tokens[1..n-1].
  static TrainSequence next_token(const std::vector<std::int32_t>& tokens);
};

struct LossOptions {
  LossKind kind = LossKind::cross_entropy;
  float clip_low = 0.2f, clip_high = 0.28f;
  // Every weight is divided by this, known before backward; 0: the sum of all weights of the call.
  double normaliser = 0;
};

struct ForwardBackwardResult {
  std::vector<std::vector<float>> logprobs;   // per sequence, per row; 0 where not scored
  std::vector<std::vector<float>> entropies;
  double loss = 0;        // normalised
  double index_loss = 0;  // mean KL of the indexers per row, 0 when not trained
  std::int64_t rows = 0, scored = 0;
};

}  // namespace lockstep
