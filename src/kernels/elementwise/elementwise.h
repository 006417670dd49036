// Elementwise operations on f32 [T, n] (column ranges allowed).
//   add:    y = a + b (y may be a or b)
//   scale:  y = x * factor (y may be x): linear.h's `scale`, where the sum is finished only after ranks have joined their parts
//   swiglu: y = (g * sigmoid(g)) * u;  du = dy * (g s);  dg = (dy * u) * (s * fma(g, 1 - s, 1)), s = sigmoid(g)
//   clamped swiglu (limit > 0; gpt_oss): g' = min(g, limit), u' = clamp(u, -limit, limit), s = sigmoid(gain g'), y = (g' s) * (u' + 1);
//           du = dy * (g' s), +0 where u was clamped; dg = (dy * (u' + 1)) * (s * fma(gain g', 1 - s, 1)), +0 where g was clamped.
//           A NaN is not clamped.
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct Add {
  View y, a, b;
};
struct Scale {
  View y, x;
  float factor = 1.0f;
};
struct SwigluForward {
  View y, gate, up;
  float gain = 1.0f, limit = 0.0f;  // limit 0: plain
};
struct SwigluBackward {
  View dgate, dup, dy, gate, up;
  float gain = 1.0f, limit = 0.0f;
};

}  // namespace lockstep
