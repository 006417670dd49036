// The CUDA products behind linear.h: y[t, n] = chain(G) over k of x[t, k] w[n, k], of any weight that stored_weights_cuda.h can read. Every
// output's sum is one thread's chain per leaf, so neither a tile's shape nor the choice of a tile changes a bit.
//   wide:    8 warps, kRows rows each, share a tile of 128 outputs in shared memory; a thread has kRows x 4 sums. For many rows.
//   narrow:  16 outputs x all leaves at once; a thread has one leaf of one output, of kRows rows. For few rows: every weight is read once.
#pragma once
#include "kernels/linear/product_narrow_cuda.h"
#include "kernels/linear/product_wide_cuda.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

// The largest tile that the rows of an item fill and whose blocks keep the GPU busy.
template <class Weights>
void launch_product(const ProductItems& op, const Weights& weights, Grid& grid) {
  if (op.rows == 0 || op.count == 0 || op.outputs == 0) return;
  const std::int64_t rows = op.offsets ? (op.rows + op.count - 1) / op.count : op.rows;  // of an item
  const int parts = most_parts(op);
  const auto fits = [&](std::int64_t tile) { return rows > tile / 2 && op.row_tiles(tile) * ((op.outputs + 127) / 128) * parts >= kBusyBlocks; };
  if (fits(64)) return launch_wide<8>(op, weights, grid);
  if (fits(32)) return launch_wide<4>(op, weights, grid);
  if constexpr (Weights::kAcross) {
    launch_wide<2>(op, weights, grid);  // narrow tiles read neighbours of one input
  } else {
    if (fits(16)) launch_wide<2>(op, weights, grid);
    else if (rows == 1) launch_narrow<1>(op, weights, grid);
    else if (rows <= 4) launch_narrow<4>(op, weights, grid);
    else launch_narrow<8>(op, weights, grid);
  }
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
