// Elementwise operations on f32 [T, n] (column ranges allowed).
//   add:    y = a + b (y may be a or b)
//   swiglu: y = (g * sigmoid(g)) * u;  du = dy * (g s);  dg = (dy * u) * (s * fma(g, 1 - s, 1)), s = sigmoid(g)
#pragma once
#include "kernels/rows.h"

namespace lockstep {

struct Add { View y, a, b; };
struct SwigluForward { View y, gate, up; };
struct SwigluBackward { View dgate, dup, dy, gate, up; };

}  // namespace lockstep
