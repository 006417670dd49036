// The bias of a linear layer, added to its finished sum: y[t, j] = y[t, j] + b[j], one plain add.
//   gradient of b[j]: per segment dot16 along its rows of dy[t, j] * 1 (row i of the segment in lane i mod 16), deposited (as rms_norm.h).
//   y's own gradient is dy: there is no adjoint to launch for it.
// Expert g has a bias of its own, row g of b, for the rows offsets[g] .. offsets[g + 1] of y (as linear.h); in its gradient, row i of a segment is
// then the i-th of those of the segment's rows that chose the expert.
// y may be a column range (stride > n). Rows are independent; a NaN stays in its row and column.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct BiasAdd {
  View y;          // f32 [T, n], read and written
  View b;          // f32 or bf16 [1, n]; experts: [count, n]
  View offsets{};  // i32 [count + 1, 1], experts only
};
struct BiasBackward {
  View gradient;  // f32 as b
  View bins;      // dtype bins [1 or count, 16 * ceil(n/16)], or none (see linear.h)
  bool finish = true;
  View dy;         // f32 [T, n]
  View segment;    // i32, of the rows of the batch
  View offsets{};  // i32 [count + 1, 1], experts only
  View row_of{};   // experts: i32 [T, 1], row of the batch that each row of dy came from
};

}  // namespace lockstep
