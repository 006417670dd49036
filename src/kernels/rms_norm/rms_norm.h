// RMSNorm: y = (x * rsqrt(mean(x^2) + eps)) * w, rows of n values; one rounding after each product, all fp32.
//   mean: dot16(x, x) / n;  r = 1 / sqrt(mean + eps)
//   with `addend`: sum = x + addend, one rounded add an element, and y is the norm of sum, in one pass over memory; sum may be x or addend
//   backward: g = dy * w; n_i = x_i r; m = dot16(g, n) / n; dx = r * (g - n * m), or with `onto` onto + that, one more rounded add; dx may be
//   neither x nor dy
//   dw[j]: per segment dot16 along its rows of dy[t, j] * n[t, j] (row i of the segment in lane i mod 16), deposited.
// x and y may be column ranges (stride > n). Norms of heads are rows of their own: the view [T * heads, n] of [T, heads * n];
// the rows of a segment are then counted through, heads inner.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct RmsNormForward {
  View y, x;  // f32 [T, n]
  View w;     // f32 or bf16 [1, n]
  float eps = 1e-6f;
  View addend{}, sum{};  // f32 [T, n], or none
};
struct RmsNormBackward {
  View dx;        // f32 [T, n], overwritten
  View gradient;  // f32 [1, n]; none: no weight gradient
  View bins;      // dtype bins [1, 16 * ceil(n/16)], or none (see linear.h)
  bool finish = true;
  View dy, x, w;
  View segment;
  float eps = 1e-6f;
  std::int64_t heads = 1;  // rows of x that share an entry of `segment`
  View onto{};             // f32 [T, n], or none: the gradient that x has already
};

}  // namespace lockstep
