// Rows of logits by sixteen lanes: a leaf's part of the entropy, and the gradient, whose formulas are row_loss.h's. Included by head.inl; every
// function is a template over V.
#pragma once
#include "kernels/head/row_loss.h"

namespace lockstep {

// One leaf's part of sum p z, p = exp(z - log_sum).
template <class V>
inline typename V::Elem leaf_entropy(const typename V::Elem* z, std::int64_t n, const V& log_sum) {
  return dot16_of<V>(n, [&](std::int64_t i, int lanes) { return exp(V::load_partial(z + i, lanes) - log_sum); },
                     [&](std::int64_t i, int lanes) { return V::load_partial(z + i, lanes); });
}

// Turns n logits of row t, which stand for the tokens from `first` on, into their gradient. A row without a slope gets +0.
template <class V>
inline void row_gradient(const RowGradient& op, std::int64_t t, typename V::Elem* z, std::int64_t n, std::int64_t first) {
  using Elem = typename V::Elem;
  const RowSlopes<V> row = row_slopes<V>(op, t);
  if (!row.moves) {
    for (std::int64_t i = 0; i < n; i += 16) V::zero().store_partial(z + i, lanes_left(n, i));
    return;
  }
  const std::int32_t* target = ints(op.target) + t * op.target.stride;
  const Elem* slope = elements<V>(op.slope) + t * op.slope.stride;
  const auto own = [&](std::int64_t k) { return target[k] >= first && target[k] < first + n; };
  // The only target's own logit, before it is overwritten.
  Elem at_target = element<Elem>(0.0f);
  std::int64_t only = -1;
  for (std::int64_t k = 0; row.scored == 1 && k < op.target.cols; ++k)
    if (own(k)) only = target[k] - first, at_target = target_gradient<V>(row, slope[k], z[only]);
  for (std::int64_t i = 0; i < n; i += 16) {
    const int lanes = lanes_left(n, i);
    logit_gradient<V>(row, V::load_partial(z + i, lanes)).store_partial(z + i, lanes);
  }
  if (only >= 0) z[only] = at_target;
  for (std::int64_t k = 0; row.scored > 1 && k < op.target.cols; ++k)
    if (own(k)) z[target[k] - first] = z[target[k] - first] + slope[k];
}

}  // namespace lockstep
