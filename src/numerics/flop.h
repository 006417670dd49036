// Counts the floating-point operations of matrix products and attention; a multiply-add counts 2. Plans, benchmarks and profiles of a run use these.
// Pure functions.
//   const double flop = product_flop(512, 1536 * 576);
#pragma once

namespace lockstep {

// A product of `rows` rows with a matrix of `weights` elements.
constexpr double product_flop(double rows, double weights) { return 2 * rows * weights; }

// Attention forward: a score over `key` columns and a weighted sum over `value` columns for each of `pairs` pairs of a query head and a key that it
// sees. `key`, `value`: the widths of one head's key and value.
constexpr double attention_flop(double pairs, double key, double value) { return pairs * 2 * (key + value); }
// Attention backward: recomputes the score, then the gradients of its probability, of query, key and value.
constexpr double attention_backward_flop(double pairs, double key, double value) { return pairs * (6 * key + 4 * value); }

}  // namespace lockstep
