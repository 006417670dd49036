// Token embedding: y[t] = table[token[t]], and its gradient.
//   weight gradient: for each segment and token id, one ascending chain of plain adds over the rows with that id, from +0,
//   deposited into the order-free accumulator.
//   With `bins` the deposits are added to what is there; `finish`: the totals go to `gradient` and the bins are emptied; without
//   bins this call's deposits alone make the gradient. Rows of a segment stand together, segments ascending.
// The table is row-major [V, h], or packed as a linear weight is (linear.h): then it is a tied table, whose other use is the head, and
// HeadWeight (head.h) makes its gradient, with these chains.
// A token id outside [0, V) is refused before it gets here (engine and trainer check).
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct EmbeddingForward {
  View y;      // f32 [T, h]
  View table;  // f32 or bf16 [V, h], or packed [1, ceil(V/16) * h * 16]
  View token;
  bool packed = false;
  int bits = 0;                 // 8 or 4: the table is packed as integers (numerics/quantised.h); y = float(q) * scale
  std::int64_t vocabulary = 0;  // V, where bits are given
};
struct EmbeddingBackward {
  View gradient;  // f32 [V, h]
  View bins;      // dtype bins [V, 16 * ceil(h/16)]: ceil(h/16) groups of 16 lanes a row; or none
  bool finish = true;
  View dy;  // f32 [T, h]
  View token, segment;
};

}  // namespace lockstep
