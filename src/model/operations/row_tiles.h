// What works on each row by itself (a feed-forward block) in tiles of rows, where its activations are not kept, so that they take the memory of a tile
// however long the text is. A tile is whole segments of gradients (docs/numerics.md), each of which is one chain of a weight's gradient, and the chains of all
// tiles are deposited exactly: no bit depends on tiles.
//   const Tensor y = in_row_tiles(ctx, h, mlp.row_cost(), [&](const Tensor& rows) { return mlp.forward(ctx, rows); });   // [T, n] -> [T, n]
#pragma once
#include <cstdint>
#include <functional>

#include "model/context.h"

namespace lockstep {

// Works on some rows of the batch, which ctx.batch() then has alone.
using RowWork = std::function<Tensor(const Tensor& rows)>;

// Of the whole work, whatever share a rank has: all ranks cut rows alike.
struct RowCost {
  std::int64_t weights = 0;  // that have gradients
  std::int64_t values = 0;   // fp32 numbers that a row takes in the backward, at the most
};

// All rows at once where ForwardOptions::row_tile does not ask for tiles, and where rows are shared, read, stored, shown to an observer or travel. The
// backward computes a tile again, with its gradients; all rows, where one backward is the whole step and accumulators of all weights would take more
// memory than tiles save.
Tensor in_row_tiles(Context& ctx, const Tensor& x, const RowCost& cost, const RowWork& work);

}  // namespace lockstep
