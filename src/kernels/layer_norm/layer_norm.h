// LayerNorm with bias (the indexer's key norm): y = (x - mean) * rsqrt(var + eps) * w + b, biased variance.
//   mean: the dot16 lanes and tree over x (terms x_i * 1), / n; var: dot16(c, c) / n with c = x - mean.
//   y = fma((c * r), w, b).
//   backward: g = dy * w; n_i = c_i r; a = dot16(g, 1) / n; m = dot16(g, n) / n; dx = r * ((g - a) - n * m); dx may be
//   neither x nor dy; dw, db: per segment dot16 along its rows of dy * n and dy * 1, deposited (as rms_norm.h).
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct LayerNormForward {
  View y, x;  // f32 [T, n]
  View w, b;  // f32 or bf16 [1, n]
  float eps = 1e-6f;
};
struct LayerNormBackward {
  View dx;                      // f32 [T, n], overwritten; none: not wanted
  View gradient_w, gradient_b;  // f32 [1, n]; both or, with both bins, none
  View bins_w, bins_b;          // dtype bins [1, 16 * ceil(n/16)], both or none (see linear.h)
  bool finish = true;
  View dy, x, w;
  View segment;
  float eps = 1e-6f;
};

}  // namespace lockstep
