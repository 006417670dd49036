// Rotary position embedding, pairs form: (x[2i], x[2i+1]) -> (a c - b s, b c + a s), angle i of the row's position.
//   a' = fma(a, c, -(b * s)) ; b' = fma(b, c, a * s); the inverse (backward) takes -s.
// Reads columns x_offset + h * x_step .. of each head h, rotates the first `rotary` of them and writes them to columns
// y_offset + h * y_step ..; `pass` further columns are copied after them. x and y may be one buffer when the columns agree.
// table: f32 [positions, rotary] of (cos, sin) pairs, by our own functions (model/rope_table.h).
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct Rope {
  View y, x;
  std::int64_t heads = 1, rotary = 0, pass = 0;
  std::int64_t x_offset = 0, x_step = 0, y_offset = 0, y_step = 0;
  View table, position;
  bool inverse = false;
};

}  // namespace lockstep
