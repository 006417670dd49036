// The head where ranks share the vocabulary: each has the logits of its leaves, and small sums of every leaf travel. The orders are
// those of head.h, so the bits are; products with the weight's share are plain linear ones (linear.h).
//   sums:     of each own leaf its maximum, its sum of exponentials, and the target's logit where it lies in it (+0 elsewhere)
//   loss:     from the sums of all leaves: log_sum, slope (dlogprob, +0 without a gradient), logprob, loss, flags
//   gradient: entropy sums of own leaves, then z becomes dz (rows without a slope: +0)
//   entropy:  log_sum minus the joined entropy sums of all leaves (+0 where not scored)
#pragma once
#include "kernels/head/head.h"

namespace lockstep {

struct HeadShardSums {
  View sums{};                // f32 [T, 3 * own leaves]
  View z{};                   // f32 [T, own tokens]
  View target{};              // i32 [T, 1]
  std::int64_t first = 0;     // own tokens are [first, first + z.cols)
  std::int64_t leaves = 1;    // own ones
};
struct HeadShardLoss {
  View log_sum{}, slope{}, logprob{};  // f32 [T, 1]
  View loss{};                // f32 [T, 1] or none
  View flags{};               // i32 [T, 1], or-ed
  View sums{};                // f32 [T, 3 * leaves], of all
  View target{};
  std::int64_t vocabulary = 0;
  LossKind kind = LossKind::none;
  View weight{}, advantage{}, old_logprob{};
  float clip_low = 0.2f, clip_high = 0.28f;
};
struct HeadShardGradient {
  View z{};                   // f32 [T, own tokens]
  View entropy{};             // f32 [T, own leaves]
  View log_sum{}, slope{}, target{};
  std::int64_t first = 0;
  bool gradient = true;       // false: z stays
};
struct HeadShardEntropy {
  View entropy{};             // f32 [T, 1]
  View sums{};                // f32 [T, leaves], of all; overwritten
  View log_sum{}, target{};
};

}  // namespace lockstep
