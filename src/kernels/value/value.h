// The loss of values: what a head [1, hidden] says of each row of a sequence, a number, against the return that the row had.
//   square, per row, with v the value, R the return, w the weight (mask and normaliser):
//     loss = w (1/2 max((v - R)^2, (c - R)^2)), c = v held between old - clip and old + clip; without a clip c = v
//     slope, the loss's derivative by v: w (v - R); +0 where the second square is the larger one, whose v is held
//   linear: loss = 0 - w v, slope = 0 - w: what a loss that is computed elsewhere weighs values by (a pair of rewards)
// Orders: v - R, its square, the halving, the weight, one rounding each. A tie is the first square's. Rows are independent.
// A target < 0 is not scored: value, loss and slope +0. A row of weight 0 has loss and slope +0. A scored row whose value is not finite is
// marked in flags (bit 2). The product that gives v, and the gradients of head and hidden state by the slopes, are linear's and bias's.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct ValueLoss {
  enum class Kind : std::int32_t { none, linear, square };
  View value{};   // f32 [T, 1], read and written
  View loss{};    // f32 [T, 1] or none
  View slope{};   // f32 [T, 1] or none
  View marks{};   // i32 [T, 1] or none: 1 where v was held
  View flags{};   // i32 [T, 1] or none, or-ed
  View target{};  // i32 [T, 1]
  Kind kind = Kind::none;
  View weight{};    // f32 [T, 1], of kinds with a loss
  View returned{};  // f32 [T, 1], of squares
  View old{};       // f32 [T, 1], of squares with a clip: the values when the returns were made
  float clip = 0;   // 0: none
};

}  // namespace lockstep
