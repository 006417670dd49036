// Counts the floating-point operations of matrix products and attention; a multiply-add counts 2. Plans, benchmarks and profiles of a run use these.
// Pure functions.
//   const double flop = product_flop(512, 1536 * 576);
#pragma once

namespace lockstep {

// Rows times a matrix of so many weights.
constexpr double product_flop(double rows, double weights) { return 2 * rows * weights; }

// `pairs`: of a query head and a key that it sees. `key`, `value`: the width of one head's key and of its value.
// A query meets the key, then the value is added.
constexpr double attention_flop(double pairs, double key, double value) { return pairs * 2 * (key + value); }
// The score again and its gradient (by the value), then what is added to the query's, the key's and the value's.
constexpr double attention_backward_flop(double pairs, double key, double value) { return pairs * (6 * key + 4 * value); }

}  // namespace lockstep
