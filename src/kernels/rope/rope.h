// Rotary position embedding: (a, b) -> (a c - b s, b c + a s), angle i of the row's position.
//   pairs: a = x[2i], b = x[2i+1]; half: a = x[i], b = x[i + rotary/2].
//   a' = fma(a, c, -(b * s)) ; b' = fma(b, c, a * s); the inverse (backward) takes -s.
// Reads columns x_offset + h * x_step .. of each head h, rotates the first `rotary` of them and writes them to columns
// y_offset + h * y_step ..; `pass` further columns are copied after them. x and y may be one buffer when the columns agree.
// table: f32 [positions, rotary], by our own functions (model/rope_table.h): (cos, sin) pairs; half: all cosines, then all sines.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct Rope {
  View y, x;
  std::int64_t heads = 1, rotary = 0, pass = 0;
  std::int64_t x_offset = 0, x_step = 0, y_offset = 0, y_step = 0;
  View table, position;
  bool inverse = false;
  bool half = false;
};

}  // namespace lockstep
