// Linear layers: y = x W^T, and their adjoints. One form for plain layers, per-head layers and experts.
//   forward    y[t, n]  = chain(G(K)) over k of x[t, k] W[n, k]          lanes across outputs n
//   input      dx[t, k] = chain(G(N)) over n of dy[t, n] W[n, k]         lanes across k
//   weight     dW[n, k] = for each segment one ascending chain over its rows of dy[t, n] x[t, k], deposited into the
//                         order-free accumulator; lanes across n
// A weight is packed in panels [N/16][K][16], N padded with zeros (docs/numerics.md section 4), fp32 or bf16 (widened exactly).
// `count` weights lie one after another; item g reads x columns g * x_step.. and writes y columns g * y_step.. (heads), or,
// where `offsets` is given, rows offsets[g] .. offsets[g+1] of x and y (experts; no column steps then); with `ends` too, rows
// offsets[g] .. ends[g] (those of one adapter among an expert's).
// `scale` multiplies a finished sum, one rounding; with `accumulate` the result is added to the old value by one plain add.
// Backward, items must not share columns or rows of dx (steps of 0 mean one item); rows outside every item are left as they are.
// A weight of integers (PackedWeight::bits, forward alone) lies as numerics/quantised.h says. Rows of x are quantised in groups of 32
// to 8 bits as weights are, their scale in fp32; of a group g the products of integers are summed exactly, and
//   y[t, n] = chain(G) over groups of fma(float(isum[t, n, g]), sx[t, g] * sw[n, g], .), G = quantised_leaf_count(K)
// A NaN or an infinity in a row of x makes that row's outputs NaN.
// The bits of a row depend on that row and the weight alone, whatever rows stand beside it.
#pragma once
#include "kernels/rows.h"
#include "numerics/quantised.h"

namespace lockstep {

struct PackedWeight {
  View data{};               // flat: count * ceil(N/16) * K * 16 elements
  std::int64_t outputs = 0;  // N
  std::int64_t inputs = 0;   // K
  std::int64_t count = 1;
  int maximum_leaves = 8;  // the profile's
  int bits = 0;            // 8 or 4: `data` is u8, count * quantised().bytes()
  QuantisedShape quantised() const { return {outputs, inputs, bits}; }
  std::int64_t panels() const { return (outputs + 15) / 16; }
  std::int64_t packed_size() const { return panels() * inputs * 16; }  // elements of one weight
};

struct LinearForward {
  View y{}, x{};  // [T, *]
  PackedWeight w{};
  std::int64_t x_step = 0, y_step = 0;
  View offsets{};  // i32 [count + 1, 1], experts only
  // Which leaves of the sum to add (a rank's share); whole sum: 0 .. >= G; no leaf in the range: y = +0. Two halves of the
  // leaves joined by one add are the whole sum.
  int leaf_begin = 0, leaf_end = 8;
  bool round_input_bf16 = false;  // study profiles: x is rounded to bf16 before use
  View ends{};                    // i32 [count, 1], or none
  float scale = 1;                // as `accumulate`, not for integer weights
  bool accumulate = false;        // y += instead of y =
  View rows_made{};               // experts: i32 [rows of x, 1], or none: a row's cell grows by 1 when its outputs are computed
};
struct LinearBackwardInput {
  View dx{}, dy{};
  PackedWeight w{};
  std::int64_t x_step = 0, y_step = 0;
  View offsets{};
  bool accumulate = false;  // dx += (a plain add of the finished sum) instead of dx =
  View ends{};
  float scale = 1;
};
struct LinearBackwardWeight {
  View gradient{};  // fp32, packed as the weight; overwritten with the total when `bins` is absent or `finish`
  View bins{};      // accumulators of the whole weight that persist between calls (dtype bins), or none: one call is the batch
  bool finish = true;
  View dy{}, x{};
  PackedWeight w{};  // shapes only
  std::int64_t x_step = 0, y_step = 0;
  View offsets{};
  View segment{};  // i32 [T, 1]
  View row_of{};   // experts: i32 [rows, 1], row of the batch that an expert row came from (for its segment); else none
  View ends{};
};

}  // namespace lockstep
