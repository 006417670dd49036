// The loss of a value head: a head [1, hidden] predicts a number for each row of a sequence, which is compared with the row's return.
//   square, per row, with v the value, R the return, w the weight (mask and normaliser):
//     loss = w (1/2 max((v - R)^2, (c - R)^2)), c = v held between old - clip and old + clip; without a clip c = v
//     slope, the loss's derivative by v: w (v - R); +0 where the second square is the larger one, whose v is held
//   linear: loss = 0 - w v, slope = 0 - w: for losses computed elsewhere, whose derivative by the value is 0 - w (a pair of rewards)
// Order of operations: v - R, its square, the halving, the weight, one rounding each. Of equal squares the first is taken. Rows are independent.
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
