// The head when ranks split the vocabulary: each rank has the logits of its leaves, and ranks exchange a few sums per leaf. The orders, and so
// the bits, are those of head.h; products with the weight's share are plain linear ones (linear.h).
//   sums:     divides z by the rows' temperatures; for each own leaf its maximum, its sum of exponentials, and each target's logit if it lies in it
//             (+0 elsewhere); of rows that keep tokens, the logits of these, in the leaf's first places of `kept`
//   loss:     from the sums of all leaves: log_sum, slopes (dlogprob, +0 without a gradient), logprobs, losses, flags
//   gradient: entropy sums of own leaves, then z becomes dz (rows without a slope: +0)
//   entropy:  log_sum minus the joined entropy sums of all leaves (+0 where not scored), and what its bonus takes from the loss
//   taught, divergence: of rows with a teacher (teacher.h), whose logits y are cut as z, and whose log-sums come of sums and loss of y. taught makes the
//             divergence's sums of own leaves; divergence joins those of all: loss, slope, centre, flags; taught, without sums, then makes z dz
// An entropy bonus needs the entropy before the gradient: gradient (with gradient = false), entropy, gradient (without entropy sums).
#pragma once
#include "kernels/head/head.h"

namespace lockstep {

struct HeadShardSums {
  View sums{};              // f32 [T, (2 + K) * own leaves]
  View z{};                 // f32 [T, own tokens]
  View target{};            // i32 [T, K]
  std::int64_t first = 0;   // own tokens are [first, first + z.cols)
  std::int64_t leaves = 1;  // own ones
  RowDistribution distribution{};
  View kept{};  // f32 [T, places * own leaves], where the distribution keeps tokens
};
struct HeadShardLoss {
  View log_sum{};           // f32 [T, 1]
  View slope{}, logprob{};  // f32 [T, K]
  View loss{};              // f32 [T, K] or none
  View marks{};             // i32 [T, K] or none
  View flags{};             // i32 [T, 1], or-ed
  View entropy_slope{};     // f32 [T, 1] or none
  View sums{};              // f32 [T, (2 + K) * leaves], of all
  View target{};
  std::int64_t vocabulary = 0;
  Objective objective{};
  RowDistribution distribution{};
  View kept{};  // f32 [T, places * leaves], of all
  int maximum_leaves = 8;
};
struct HeadShardGradient {
  View z{};        // f32 [T, own tokens]
  View entropy{};  // f32 [T, own leaves] or none
  View log_sum{}, slope{}, target{};
  std::int64_t first = 0;
  bool gradient = true;                 // false: z stays
  View row_entropy{}, entropy_slope{};  // f32 [T, 1], with an entropy bonus
  RowDistribution distribution{};
  bool tempered = true;  // false: z is not yet divided by the temperature
};
struct HeadShardEntropy {
  View entropy{};  // f32 [T, 1]
  View sums{};     // f32 [T, leaves], of all; overwritten
  View log_sum{}, target{};
  View loss{}, entropy_slope{};  // with an entropy bonus
  RowDistribution distribution{};
  View kept{};  // as in HeadShardLoss
  int maximum_leaves = 8;
};
struct HeadShardTaught {
  View z{}, y{};                      // f32 [T, own tokens]
  View sums{};                        // f32 [T, divergence_sums * own leaves]; none: z becomes dz
  View log_sum{}, slope{}, target{};  // the student's; slope for dz
  HeadTeacher teacher{};              // of which its divergence, log_sum and, for dz, centre are read
};
struct HeadShardDivergence {
  View loss{};            // f32 [T, 1] or none
  View slope{}, flags{};  // f32 [T, 1]; i32 [T, 1], or-ed
  View sums{};            // f32 [T, divergence_sums * leaves], of all
  View target{};
  Objective objective{};
  HeadTeacher teacher{};  // its log_sum is read, its centre written
};

}  // namespace lockstep
